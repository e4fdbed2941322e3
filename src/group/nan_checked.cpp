// The search for NaN and infinities: an exponent of all ones, in every floating-point dtype.
#include <hookline/group/nan_checked.hpp>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <hookline/core/error.hpp>
#include <hookline/group/decorator.hpp>

#include "group/abort_quietly.hpp"

namespace hookline {
namespace {

/// The first element whose exponent bits are all set, or -1. Blocks are judged as a whole, in vector registers.
template <class Bits>
std::int64_t first_special(const std::byte* bytes, std::int64_t count, Bits exponent) {
  constexpr std::int64_t kBlock = 1024;
  const auto* const elements = reinterpret_cast<const Bits*>(bytes);
  for (std::int64_t begin = 0; begin < count; begin += kBlock) {
    const std::int64_t end = std::min(begin + kBlock, count);
    unsigned any = 0;
    for (std::int64_t i = begin; i < end; ++i) any |= (elements[i] & exponent) == exponent ? 1U : 0U;
    if (!any) continue;
    return std::find_if(elements + begin, elements + end, [&](Bits e) { return (e & exponent) == exponent; }) -
           elements;
  }
  return -1;
}

std::int64_t first_special(const Tensor& tensor) {
  const Tensor t = tensor.contiguous();
  switch (t.dtype()) {
    case DType::f32: return first_special<std::uint32_t>(t.bytes(), t.numel(), 0x7f800000U);
    case DType::f64: return first_special<std::uint64_t>(t.bytes(), t.numel(), 0x7ff0000000000000U);
    case DType::f16: return first_special<std::uint16_t>(t.bytes(), t.numel(), 0x7c00U);
    case DType::bf16: return first_special<std::uint16_t>(t.bytes(), t.numel(), 0x7f80U);
    default: return -1;
  }
}

/// Where an element is, a number for each dimension.
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
    for (std::size_t i = 0; sends && i < collective.inputs.size(); ++i) {
      const std::int64_t element = first_special(collective.inputs[i]);
      if (element >= 0) refuse(collective, i, element);
    }
    return inner()->run(std::move(collective));
  }

 protected:
  std::shared_ptr<ProcessGroup> decorate(std::shared_ptr<ProcessGroup> group, const std::vector<int>&) override {
    return nan_checked(std::move(group));
  }

 private:
  [[noreturn]] void refuse(const Collective& collective, std::size_t index, std::int64_t element) const {
    const Tensor& tensor = collective.inputs[index];
    const std::string text =
        fmt::format("{} (number {}) on rank {} would send {}: tensor {}, {}, element [{}]", name(collective.type),
                    sequence_number() + 1, rank(), is_nan(tensor, element) ? "NaN" : "an infinity", index,
                    to_string(tensor), fmt::join(index_of(tensor, element), ", "));
    group::abort_quietly(*inner(), text);
    throw InvalidArgument(text);
  }
};

}  // namespace

std::shared_ptr<ProcessGroup> nan_checked(std::shared_ptr<ProcessGroup> group) {
  return std::make_shared<NanCheckedGroup>(std::move(group));
}

}  // namespace hookline
