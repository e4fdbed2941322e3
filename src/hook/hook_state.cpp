// Serialization format of hook state: per value a type tag, a size and the data, little-endian.
#include <hookline/hook/hook_state.hpp>

#include <bit>
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

void StateWriter::write_integer(std::uint64_t bits, bool negative) {
  state_.push_back(negative ? std::byte{'-'} : std::byte{'n'});
  append_u64(state_, bits);
}

void StateWriter::boolean(bool value) {
  state_.push_back(std::byte{'b'});
  state_.push_back(value ? std::byte{1} : std::byte{0});
}

void StateWriter::number(double value) {
  state_.push_back(std::byte{'d'});
  append_u64(state_, std::bit_cast<std::uint64_t>(value));
}

void StateWriter::write_block(char kind, std::span<const std::byte> value) {
  state_.push_back(static_cast<std::byte>(kind));
  append_u64(state_, value.size());
  state_.insert(state_.end(), value.begin(), value.end());
}

void StateWriter::text(std::string_view value) { write_block('s', std::as_bytes(std::span(value))); }
void StateWriter::bytes(std::span<const std::byte> value) { write_block('x', value); }

void StateWriter::tensor(const Tensor& value) {
  state_.push_back(std::byte{'t'});
  append_u64(state_, static_cast<std::uint64_t>(value.dtype()));
  append_u64(state_, value.dim());
  for (const std::int64_t extent : value.shape()) append_u64(state_, static_cast<std::uint64_t>(extent));
  const Tensor elements = value.contiguous();
  state_.insert(state_.end(), elements.bytes(), elements.bytes() + elements.nbytes());
}

std::span<const std::byte> StateReader::read_bytes(std::size_t count) {
  if (count > rest_.size()) throw InvalidArgument("the saved state is corrupt: it is truncated");
  const auto result = rest_.first(count);
  rest_ = rest_.subspan(count);
  return result;
}

void StateReader::expect_kind(char kind) {
  if (read_bytes(1)[0] != static_cast<std::byte>(kind)) {
    throw InvalidArgument("the saved state is corrupt, or not a saved state: unexpected type of value");
  }
}

std::span<const std::byte> StateReader::read_block(char kind) {
  expect_kind(kind);
  return read_bytes(read_u64(read_bytes(8)));
}

StateReader::Integer StateReader::read_integer() {
  const bool negative = !rest_.empty() && rest_[0] == std::byte{'-'};
  expect_kind(negative ? '-' : 'n');
  return {read_u64(read_bytes(8)), negative};
}

void StateReader::throw_out_of_range() {
  throw InvalidArgument("the saved state is corrupt, or not a saved state: an integer is out of range");
}

bool StateReader::boolean() {
  expect_kind('b');
  const std::byte value = read_bytes(1)[0];
  if (value > std::byte{1}) throw InvalidArgument("the saved state is corrupt: invalid boolean");
  return value == std::byte{1};
}

double StateReader::number() {
  expect_kind('d');
  return std::bit_cast<double>(read_u64(read_bytes(8)));
}

std::string StateReader::text() {
  const auto chars = read_block('s');
  return {reinterpret_cast<const char*>(chars.data()), chars.size()};
}

std::vector<std::byte> StateReader::bytes() {
  const auto value = read_block('x');
  return {value.begin(), value.end()};
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
    if (extent > rest_.size() || __builtin_mul_overflow(bytes, extent, &bytes)) read_bytes(rest_.size() + 1);
    shape.push_back(static_cast<std::int64_t>(extent));
  }
  const auto elements = read_bytes(bytes);
  Tensor result = Tensor::empty(shape, static_cast<DType>(dtype));
  if (bytes > 0) std::memcpy(result.mutable_bytes(), elements.data(), bytes);
  return result;
}

void StateReader::expect_end() const {
  if (!rest_.empty()) throw InvalidArgument("the saved state is corrupt: it has trailing bytes");
}

std::vector<std::byte> save_state(const CommHookInterface& hook, const ProcessGroup& group) {
  StateWriter writer;
  writer.text(kMagic);
  writer.text(hook.name());
  writer.integer(static_cast<std::uint64_t>(group.size()));
  writer.integer(static_cast<std::uint64_t>(group.rank()));
  hook.save(writer);
  return std::move(writer).state();
}

void load_state(CommHookInterface& hook, const ProcessGroup& group, std::span<const std::byte> state) {
  StateReader reader(state);
  if (reader.text() != kMagic) throw InvalidArgument("load_state: these bytes are not the state of a hook");
  const auto expect = [](const char* what, const auto& saved, const auto& here) {
    if (saved != here)
      throw InvalidArgument(
          fmt::format("load_state: expected a state of {} {}, got one of {} {}", what, here, what, saved));
  };
  expect("the hook", reader.text(), hook.name());
  expect("world size", reader.integer(), static_cast<std::uint64_t>(group.size()));
  expect("rank", reader.integer(), static_cast<std::uint64_t>(group.rank()));
  hook.load(reader);
  reader.expect_end();
}

}  // namespace hookline
