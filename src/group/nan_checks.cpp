// The group that checks tensors for NaN and infinities before it sends them.
#include <hookline/group/nan_checks.hpp>

#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <hookline/core/error.hpp>
#include <hookline/group/decorator.hpp>

#include "group/abort_quietly.hpp"
#include "kernel/find_nonfinite.hpp"

namespace hookline {
namespace {

/// Returns the position of the first NaN or infinity, or -1.
std::int64_t first_non_finite(const Tensor& tensor) {
  const Tensor t = tensor.contiguous();
  const auto count = static_cast<std::size_t>(t.numel());
  const std::size_t found = kernel::find_nonfinite(t.dtype(), t.bytes(), count);
  return found < count ? static_cast<std::int64_t>(found) : -1;
}

/// Converts a flat position to an index per dimension.
std::vector<std::int64_t> index_of(const Tensor& tensor, std::int64_t element) {
  std::vector<std::int64_t> index(tensor.dim());
  for (std::size_t d = tensor.dim(); d-- > 0;) {
    index[d] = element % tensor.shape()[d];
    element /= tensor.shape()[d];
  }
  return index;
}

bool is_nan(const Tensor& tensor, std::int64_t element) {
  const Tensor flat = tensor.contiguous().flatten();
  return std::isnan(flat.slice(0, element, element + 1).item<double>());
}

class NanCheckGroup final : public GroupDecorator {
 public:
  using GroupDecorator::GroupDecorator;

  WorkPtr run(Operation operation) override {
    const bool sends = operation.type != OpType::broadcast || operation.root == rank();
    for (std::size_t i = 0; sends && i < source_tensors(operation).size(); ++i) {
      const std::int64_t element = first_non_finite(source_tensors(operation)[i]);
      if (element >= 0) abort_and_throw(operation, i, element);
    }
    return inner()->run(std::move(operation));
  }

 protected:
  std::shared_ptr<ProcessGroup> decorate(std::shared_ptr<ProcessGroup> group, const std::string&) override {
    return with_nan_checks(std::move(group));
  }

 private:
  [[noreturn]] void abort_and_throw(const Operation& operation, std::size_t index, std::int64_t element) const {
    const Tensor& tensor = source_tensors(operation)[index];
    const std::string text = fmt::format(
        "{} (number {}) on rank {} of {}: the input contains {}: tensor {}, {}, element [{}]", name(operation.type),
        sequence_number() + 1, rank(), size(), is_nan(tensor, element) ? "NaN" : "an infinity", index,
        to_string(tensor), fmt::join(index_of(tensor, element), ", "));
    group::abort_quietly(*inner(), text);
    throw InvalidArgument(text);
  }
};

}  // namespace

std::shared_ptr<ProcessGroup> with_nan_checks(std::shared_ptr<ProcessGroup> group) {
  return std::make_shared<NanCheckGroup>(std::move(group));
}

}  // namespace hookline
