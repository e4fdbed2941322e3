// Serialization format of hook state: per value a type tag, a size and the data, little-endian.
#include <hookline/hook/hook_state.hpp>

#include <cstring>

#include <fmt/format.h>

#include <hookline/core/error.hpp>

namespace hookline {
namespace {

constexpr std::string_view kMagic = "hookline hook state 1";

void append_u64(std::vector<std::byte>& to, std::uint64_t value) {
  for (int i = 0; i < 8; ++i) to.push_back(static_cast<std::byte>(value >> (8 * i)));
}

std::uint64_t read_u64(std::span<const std::byte> bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < 8; ++i) value |= static_cast<std::uint64_t>(bytes[i]) << (8 * i);
  return value;
}

}  // namespace

void StateWriter::integer(std::uint64_t value) {
  bytes_.push_back(std::byte{'n'});
  append_u64(bytes_, value);
}

void StateWriter::text(std::string_view value) {
  bytes_.push_back(std::byte{'s'});
  append_u64(bytes_, value.size());
  const auto chars = std::as_bytes(std::span(value));
  bytes_.insert(bytes_.end(), chars.begin(), chars.end());
}

void StateWriter::tensor(const Tensor& value) {
  bytes_.push_back(std::byte{'t'});
  append_u64(bytes_, static_cast<std::uint64_t>(value.dtype()));
  append_u64(bytes_, value.dim());
  for (const std::int64_t extent : value.shape()) append_u64(bytes_, static_cast<std::uint64_t>(extent));
  const Tensor elements = value.contiguous();
  bytes_.insert(bytes_.end(), elements.bytes(), elements.bytes() + elements.nbytes());
}

std::span<const std::byte> StateReader::read_bytes(std::size_t bytes) {
  if (bytes > bytes_.size()) throw InvalidArgument("the saved state is corrupt: it is truncated");
  const auto result = bytes_.first(bytes);
  bytes_ = bytes_.subspan(bytes);
  return result;
}

void StateReader::expect_kind(char kind) {
  if (read_bytes(1)[0] != static_cast<std::byte>(kind)) {
    throw InvalidArgument("the saved state is corrupt, or not a saved state: unexpected type of value");
  }
}

std::uint64_t StateReader::integer() {
  expect_kind('n');
  return read_u64(read_bytes(8));
}

std::string StateReader::text() {
  expect_kind('s');
  const auto chars = read_bytes(read_u64(read_bytes(8)));
  return {reinterpret_cast<const char*>(chars.data()), chars.size()};
}

Tensor StateReader::tensor() {
  expect_kind('t');
  const std::uint64_t dtype = read_u64(read_bytes(8));
  const std::uint64_t dim = read_u64(read_bytes(8));
  if (dtype > static_cast<std::uint64_t>(DType::boolean) || dim > kMaxDims) {
    throw InvalidArgument("the saved state is corrupt: invalid dtype or number of dimensions of a tensor");
  }
  Dims shape;
  std::size_t bytes = size_of(static_cast<DType>(dtype));
  for (std::uint64_t i = 0; i < dim; ++i) {
    const std::uint64_t extent = read_u64(read_bytes(8));
    if (extent > bytes_.size() || __builtin_mul_overflow(bytes, extent, &bytes)) read_bytes(bytes_.size() + 1);
    shape.push_back(static_cast<std::int64_t>(extent));
  }
  const auto elements = read_bytes(bytes);
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
  writer.integer(static_cast<std::uint64_t>(group.size()));
  writer.integer(static_cast<std::uint64_t>(group.rank()));
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
  expect("world size", reader.integer(), static_cast<std::uint64_t>(group.size()));
  expect("rank", reader.integer(), static_cast<std::uint64_t>(group.rank()));
  hook.load(reader);
  reader.expect_end();
}

}  // namespace hookline
