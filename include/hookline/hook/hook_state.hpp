// Serialization of hook state, for checkpoints.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <hookline/core/export.hpp>
#include <hookline/core/tensor.hpp>
#include <hookline/group/process_group.hpp>
#include <hookline/hook/comm_hook.hpp>

namespace hookline {

/// Appends values to a byte buffer. A StateReader reads them in the same order, by functions of the same names.
class HOOKLINE_EXPORT StateWriter {
 public:
  template <std::integral T>
    requires(!std::same_as<T, bool>)
  void integer(T value) {
    write_integer(static_cast<std::uint64_t>(value), std::cmp_less(value, 0));
  }
  void boolean(bool value);
  /// Writes the exact bits of the value, including NaN payloads and the sign of zero.
  void number(double value);
  void text(std::string_view value);
  void bytes(std::span<const std::byte> value);
  /// Writes shape and elements, but not strides.
  void tensor(const Tensor& value);

  /// Returns the bytes written so far.
  const std::vector<std::byte>& state() const& noexcept { return state_; }
  std::vector<std::byte> state() && noexcept { return std::move(state_); }

 private:
  void write_integer(std::uint64_t bits, bool negative);
  void write_block(char kind, std::span<const std::byte> value);

  std::vector<std::byte> state_;
};

/// Reads values in the order in which they were written. Throws InvalidArgument if the bytes do not match.
class HOOKLINE_EXPORT StateReader {
 public:
  /// `state` must outlive the reader.
  explicit StateReader(std::span<const std::byte> state) : rest_(state) {}

  /// Throws InvalidArgument if the saved integer is out of range of T.
  template <std::integral T = std::uint64_t>
    requires(!std::same_as<T, bool>)
  T integer() {
    const Integer value = read_integer();
    const bool fits =
        value.negative ? std::in_range<T>(static_cast<std::int64_t>(value.bits)) : std::in_range<T>(value.bits);
    if (!fits) throw_out_of_range();
    return static_cast<T>(value.bits);
  }
  bool boolean();
  double number();
  std::string text();
  std::vector<std::byte> bytes();
  Tensor tensor();
  /// Throws InvalidArgument if unread bytes remain.
  void expect_end() const;

 private:
  struct Integer {
    std::uint64_t bits;  ///< two's complement
    bool negative;
  };
  Integer read_integer();
  [[noreturn]] static void throw_out_of_range();
  std::span<const std::byte> read_bytes(std::size_t count);
  std::span<const std::byte> read_block(char kind);
  void expect_kind(char kind);

  std::span<const std::byte> rest_;
};

/// Returns the state of this rank's hook; the state of a wrapper includes that of its inner hook. Call between steps.
/// save_state and load_state also accept optimizers and a PowerSGDState.
HOOKLINE_EXPORT std::vector<std::byte> save_state(const CommHookInterface& hook, const ProcessGroup& group);

/// Replaces the hook's state with a saved one. Throws InvalidArgument for the state of another hook, rank or number of
/// ranks, and for corrupt bytes. If a parameter's size has changed, the next step throws.
HOOKLINE_EXPORT void load_state(CommHookInterface& hook, const ProcessGroup& group, std::span<const std::byte> state);

}  // namespace hookline
