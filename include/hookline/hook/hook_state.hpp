// What hooks keep between steps, as bytes: how a resumed run goes on where it was.
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

/// Writes values one behind the other.
class HOOKLINE_EXPORT StateWriter {
 public:
  void number(std::uint64_t value);
  void text(std::string_view value);
  /// The shape and the elements; strides are not kept.
  void tensor(const Tensor& value);

  const std::vector<std::byte>& bytes() const noexcept { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

/// Reads them in the same order. InvalidArgument where the bytes are not what is asked for.
class HOOKLINE_EXPORT StateReader {
 public:
  explicit StateReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  std::uint64_t number();
  std::string text();
  Tensor tensor();
  /// InvalidArgument where something is left.
  void expect_end() const;

 private:
  std::span<const std::byte> take(std::size_t bytes);
  void expect(char kind);

  std::span<const std::byte> bytes_;
};

/// The state of a rank's hook. Between steps.
HOOKLINE_EXPORT std::vector<std::byte> save_state(const CommHookInterface& hook, const ProcessGroup& group);

/// Puts a saved state in the place of the hook's own. InvalidArgument naming the difference for the state of another
/// hook, rank or number of ranks, and for damaged bytes; a parameter of another size is named by the next step.
HOOKLINE_EXPORT void load_state(CommHookInterface& hook, const ProcessGroup& group, std::span<const std::byte> state);

}  // namespace hookline
