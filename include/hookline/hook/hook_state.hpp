// Serialization of hook state, for checkpoints.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <hookline/core/export.hpp>
#include <hookline/core/tensor.hpp>
#include <hookline/group/process_group.hpp>
#include <hookline/hook/comm_hook.hpp>

namespace hookline {

/// Appends values to a byte buffer.
class HOOKLINE_EXPORT StateWriter {
 public:
  void integer(std::uint64_t value);
  void text(std::string_view value);
  /// Writes shape and elements, but not strides.
  void tensor(const Tensor& value);

  const std::vector<std::byte>& bytes() const noexcept { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

/// Reads values in the order in which they were written. Throws InvalidArgument if the bytes do not match.
class HOOKLINE_EXPORT StateReader {
 public:
  explicit StateReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  std::uint64_t integer();
  std::string text();
  Tensor tensor();
  /// Throws InvalidArgument if bytes are left.
  void expect_end() const;

 private:
  std::span<const std::byte> read_bytes(std::size_t bytes);
  void expect_kind(char kind);

  std::span<const std::byte> bytes_;
};

/// Returns the state of this rank's hook. Call between steps.
HOOKLINE_EXPORT std::vector<std::byte> save_state(const CommHookInterface& hook, const ProcessGroup& group);

/// Replaces the hook's state with a saved one. Throws InvalidArgument for the state of another hook, rank or number of
/// ranks, and for corrupt bytes. A parameter of another size is reported by the next step.
HOOKLINE_EXPORT void load_state(CommHookInterface& hook, const ProcessGroup& group, std::span<const std::byte> state);

}  // namespace hookline
