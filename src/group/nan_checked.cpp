// The group that checks tensors for NaN and infinities before it sends them.
#include <hookline/group/nan_checked.hpp>

#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <hookline/core/error.hpp>
#include <hookline/group/decorator.hpp>

#include "group/abort_quietly.hpp"
#include "kernel/finite.hpp"

namespace hookline {
namespace {

/// Returns the position of the first NaN or infinity, or -1.
std::int64_t first_special(const Tensor& tensor) {
  const Tensor t = tensor.contiguous();
  const auto count = static_cast<std::size_t>(t.numel());
  const std::size_t found = kernel::find_not_finite(t.dtype(), t.bytes(), count);
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

class NanCheckedGroup final : public GroupDecorator {
 public:
  using GroupDecorator::GroupDecorator;

  WorkPtr run(Collective collective) override {
    const bool sends = collective.type != OpType::broadcast || collective.root == rank();
    for (std::size_t i = 0; sends && i < sources(collective).size(); ++i) {
      const std::int64_t element = first_special(sources(collective)[i]);
      if (element >= 0) refuse(collective, i, element);
    }
    return inner()->run(std::move(collective));
  }

 protected:
  std::shared_ptr<ProcessGroup> decorate(std::shared_ptr<ProcessGroup> group, const std::string&) override {
    return nan_checked(std::move(group));
  }

 private:
  [[noreturn]] void refuse(const Collective& collective, std::size_t index, std::int64_t element) const {
    const Tensor& tensor = sources(collective)[index];
    const std::string text =
        fmt::format("{} (number {}) on rank {} of {}: the input contains {}: tensor {}, {}, element [{}]",
                    name(collective.type), sequence_number() + 1, rank(), size(),
                    is_nan(tensor, element) ? "NaN" : "an infinity", index, to_string(tensor),
                    fmt::join(index_of(tensor, element), ", "));
    group::abort_quietly(*inner(), text);
    throw InvalidArgument(text);
  }
};

}  // namespace

std::shared_ptr<ProcessGroup> nan_checked(std::shared_ptr<ProcessGroup> group) {
  return std::make_shared<NanCheckedGroup>(std::move(group));
}

}  // namespace hookline
