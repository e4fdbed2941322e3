// Serialization format of hook state: per value a type tag, a size and the data, little-endian.
#include <hookline/hook/hook_state.hpp>

#include <cstring>

#include <fmt/format.h>

#include <hookline/core/error.hpp>

namespace hookline {
namespace {

constexpr std::string_view kMagic = "hookline hook state 1";

void append(std::vector<std::byte>& to, std::uint64_t value) {
  for (int i = 0; i < 8; ++i) to.push_back(static_cast<std::byte>(value >> (8 * i)));
}

std::uint64_t integer_of(std::span<const std::byte> bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < 8; ++i) value |= static_cast<std::uint64_t>(bytes[i]) << (8 * i);
  return value;
}

}  // namespace

void StateWriter::number(std::uint64_t value) {
  bytes_.push_back(std::byte{'n'});
  append(bytes_, value);
}

void StateWriter::text(std::string_view value) {
  bytes_.push_back(std::byte{'s'});
  append(bytes_, value.size());
  const auto chars = std::as_bytes(std::span(value));
  bytes_.insert(bytes_.end(), chars.begin(), chars.end());
}

void StateWriter::tensor(const Tensor& value) {
  bytes_.push_back(std::byte{'t'});
  append(bytes_, static_cast<std::uint64_t>(value.dtype()));
  append(bytes_, value.dim());
  for (const std::int64_t extent : value.shape()) append(bytes_, static_cast<std::uint64_t>(extent));
  const Tensor elements = value.contiguous();
  bytes_.insert(bytes_.end(), elements.bytes(), elements.bytes() + elements.nbytes());
}

std::span<const std::byte> StateReader::take(std::size_t bytes) {
  if (bytes > bytes_.size()) throw InvalidArgument("the saved state is corrupt: it is truncated");
  const auto taken = bytes_.first(bytes);
  bytes_ = bytes_.subspan(bytes);
  return taken;
}

void StateReader::expect(char kind) {
  if (take(1)[0] != static_cast<std::byte>(kind)) {
    throw InvalidArgument("the saved state is corrupt, or not a saved state: unexpected type of value");
  }
}

std::uint64_t StateReader::number() {
  expect('n');
  return integer_of(take(8));
}

std::string StateReader::text() {
  expect('s');
  const auto chars = take(integer_of(take(8)));
  return {reinterpret_cast<const char*>(chars.data()), chars.size()};
}

Tensor StateReader::tensor() {
  expect('t');
  const std::uint64_t dtype = integer_of(take(8));
  const std::uint64_t dim = integer_of(take(8));
  if (dtype > static_cast<std::uint64_t>(DType::boolean) || dim > kMaxDims) {
    throw InvalidArgument("the saved state is corrupt: invalid dtype or number of dimensions of a tensor");
  }
  Dims shape;
  std::size_t bytes = size_of(static_cast<DType>(dtype));
  for (std::uint64_t i = 0; i < dim; ++i) {
    const std::uint64_t extent = integer_of(take(8));
    if (extent > bytes_.size() || __builtin_mul_overflow(bytes, extent, &bytes)) take(bytes_.size() + 1);
    shape.push_back(static_cast<std::int64_t>(extent));
  }
  const auto elements = take(bytes);
  Tensor result = Tensor::empty(shape, static_cast<DType>(dtype));
  if (bytes > 0) std::memcpy(result.mutable_bytes(), elements.data(), bytes);
  return result;
}

void StateReader::expect_end() const {
  if (!bytes_.empty()) throw InvalidArgument("the saved state is corrupt: it has trailing bytes");
}

std::vector<std::byte> save_state(const CommHookInterface& hook, const ProcessGroup& group) {
  StateWriter writer;
  writer.text(kMagic);
  writer.text(hook.name());
  writer.number(static_cast<std::uint64_t>(group.size()));
  writer.number(static_cast<std::uint64_t>(group.rank()));
  hook.save(writer);
  return writer.bytes();
}

void load_state(CommHookInterface& hook, const ProcessGroup& group, std::span<const std::byte> state) {
  StateReader reader(state);
  if (reader.text() != kMagic) throw InvalidArgument("load_state: these bytes are not the state of a hook");
  const auto expect = [](const char* what, const auto& saved, const auto& here) {
    if (saved != here)
      throw InvalidArgument(fmt::format("load_state: the state is of {} {}: expected {}", what, saved, here));
  };
  expect("the hook", reader.text(), hook.name());
  expect("world size", reader.number(), static_cast<std::uint64_t>(group.size()));
  expect("rank", reader.number(), static_cast<std::uint64_t>(group.rank()));
  hook.load(reader);
  reader.expect_end();
}

}  // namespace hookline
