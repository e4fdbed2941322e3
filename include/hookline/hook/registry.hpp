// Hook registry and hook specs such as "int8(block=512) | error_feedback".
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <hookline/core/export.hpp>
#include <hookline/group/process_group.hpp>
#include <hookline/hook/comm_hook.hpp>

namespace hookline {

/// An option of a hook.
struct HookOption {
  std::string name;
  std::string default_value;  ///< empty if the option is optional and has no default
  std::string expected;       ///< description of valid values, such as "an integer"
};

/// The options in the parentheses of a hook spec. A factory reads each option by name with a default value. make_hook
/// rejects options that the factory did not read.
class HOOKLINE_EXPORT HookOptions {
 public:
  /// `kind` is the kind of object that has the options, for messages.
  HookOptions(std::string hook, std::map<std::string, std::string> values, std::string kind = "hook");

  /// Return the option's value. Throw InvalidArgument naming hook, option and value if it cannot be parsed.
  std::int64_t integer(const std::string& name, std::int64_t default_value);
  double number(const std::string& name, double default_value);
  bool boolean(const std::string& name, bool default_value);
  /// `expected` describes valid values in the list of options.
  std::string text(const std::string& name, const std::string& default_value, const std::string& expected = "a string");
  /// Returns one of `choices`.
  std::string choice(const std::string& name, const std::string& default_value,
                     const std::vector<std::string>& choices);

  /// True inside hook_options: a factory that has read all its options may return null instead of a hook.
  bool listing() const noexcept { return listing_; }
  void set_listing() noexcept { listing_ = true; }

  /// Throws InvalidArgument if an option was given but not read, listing the known options.
  void check_all_known() const;
  /// Returns the options read so far, each once.
  const std::vector<HookOption>& options() const noexcept { return options_; }

 private:
  const std::string* look_up(const std::string& name, std::string default_value, std::string expected);
  [[noreturn]] void throw_invalid(const std::string& name, const std::string& value) const;

  std::string hook_;
  std::string kind_;
  std::map<std::string, std::string> values_;
  std::vector<HookOption> options_;
  bool listing_ = false;
};

/// Creates a hook from a group, options and the inner hook; `inner` is null for the first term of a spec.
using HookFactory = std::function<HookPtr(std::shared_ptr<ProcessGroup> group, HookOptions& options, HookPtr inner)>;

/// Position of a hook in a spec: first (base), after '|' (wrapper), or either.
enum class HookRole : std::uint8_t { base, wrapper, either };

/// Registers a hook for make_hook. Throws InvalidArgument if the name is taken or not an identifier.
HOOKLINE_EXPORT void register_hook(const std::string& name, HookRole role, HookFactory factory,
                                   const std::string& description = "");
/// Removes a hook added by register_hook; existing hooks stay valid. Throws InvalidArgument for any other name.
HOOKLINE_EXPORT void unregister_hook(const std::string& name);

/// Creates a hook from a spec: a name with options in parentheses, then any number of wrappers. "a(x=1, y=word) | b |
/// c(z=2)" is a wrapped in b wrapped in c. Throws InvalidArgument for a syntax error, with its position, and for
/// unknown names and options, listing the known ones.
HOOKLINE_EXPORT HookPtr make_hook(std::string_view spec, std::shared_ptr<ProcessGroup> group);

/// A hook, given as a spec or as an object. Converts implicitly from both, so that a parameter or an option of this
/// type takes either: `.hook = "powersgd(rank=2)"` or `.hook = make_hook(mean_then_clip, group)`.
class HOOKLINE_EXPORT HookOrSpec {
 public:
  /// No hook: the receiver uses its default.
  HookOrSpec() = default;
  HookOrSpec(std::nullptr_t) noexcept {}
  template <class Text>
    requires std::convertible_to<const Text&, std::string_view>
  HookOrSpec(const Text& spec) : spec_(std::string_view(spec)) {}
  template <std::derived_from<CommHookInterface> Hook>
  HookOrSpec(std::shared_ptr<Hook> hook) : hook_(std::move(hook)) {}

  /// Returns the hook, or creates it on `group` from the spec. Returns null if there is neither, or if the spec is
  /// empty. Throws like make_hook.
  HookPtr make(const std::shared_ptr<ProcessGroup>& group) const;

 private:
  std::string spec_;
  HookPtr hook_;
};

/// Wraps an existing hook in the wrappers of a spec: wrap(make_hook(mean_then_clip, group), "log | compare", group).
HOOKLINE_EXPORT HookPtr wrap(HookPtr inner, std::string_view spec, std::shared_ptr<ProcessGroup> group);

struct HookDescription {
  std::string name;
  HookRole role;
  std::string description;
};
/// Returns all registered hooks, sorted by name.
HOOKLINE_EXPORT std::vector<HookDescription> registered_hooks();

/// Returns the options of a hook in the order in which its factory reads them. Calls the factory with a single-rank
/// group and, for a wrapper, the hook noop. Throws InvalidArgument for an unknown name, and the factory's exceptions.
HOOKLINE_EXPORT std::vector<HookOption> hook_options(const std::string& name);

/// ABI version of hook libraries. Changes when they must be rebuilt.
inline constexpr int kHookAbiVersion = 1;

}  // namespace hookline

/// Defines the entry points of a hook library. Use it once, at global scope. `register_all` is a function without
/// arguments that calls register_hook. The first use of a hook by name loads every libhookline_hook_*.so in the folders
/// of HOOKLINE_HOOK_PATH (separated by colons) and calls it; its exceptions reach the caller.
#define HOOKLINE_REGISTER_HOOKS(register_all)                                                        \
  extern "C" HOOKLINE_EXPORT int hookline_hook_abi_version() { return ::hookline::kHookAbiVersion; } \
  extern "C" HOOKLINE_EXPORT void hookline_register_hooks() { register_all(); }
