// Hooks by name: "int8(block=512) | error_feedback" as a hook.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <hookline/core/export.hpp>
#include <hookline/group/process_group.hpp>
#include <hookline/hook/comm_hook.hpp>

namespace hookline {

/// An option that a hook has.
struct HookOption {
  std::string name;
  std::string otherwise;  ///< its value where it is not given; empty where the hook then does without
  std::string expected;   ///< what its value must be, as in "a whole number"
};

/// The options in the parentheses of a hook's name. Each is asked for by its name, with the value that it has where it
/// is not given; one that is given and never asked for is a mistake of the user's, which make_hook finds.
class HOOKLINE_EXPORT HookOptions {
 public:
  /// `what` it is that has the options, for error texts.
  HookOptions(std::string hook, std::map<std::string, std::string> given, std::string what = "hook");

  /// Throw InvalidArgument naming hook, option and value for what cannot be read as the type asked for.
  std::int64_t integer(const std::string& name, std::int64_t otherwise);
  double number(const std::string& name, double otherwise);
  bool boolean(const std::string& name, bool otherwise);
  /// `expected` is for the list of options: what the value must be, where the caller reads more than a text from it.
  std::string text(const std::string& name, const std::string& otherwise, const std::string& expected = "a text");
  /// The same for one of a few words.
  std::string word(const std::string& name, const std::string& otherwise, const std::vector<std::string>& words);

  /// True inside hook_options: a factory that has asked for all of its options may return null without making a hook.
  bool listing() const noexcept { return listing_; }
  void set_listing() noexcept { listing_ = true; }

  /// Throws InvalidArgument naming options that were given and not asked for, and those that there are.
  void check_all_known() const;
  /// The options that were asked for so far, each once.
  const std::vector<HookOption>& asked() const noexcept { return asked_; }

 private:
  const std::string* find(const std::string& name, std::string otherwise, std::string expected);
  [[noreturn]] void refuse(const std::string& name, const std::string& value) const;

  std::string hook_;
  std::string what_;
  std::map<std::string, std::string> given_;
  std::vector<HookOption> asked_;
  bool listing_ = false;
};

/// What makes a hook: gets the group, the options, and the hook that it is wrapped around, which is null where it
/// stands first.
using HookFactory = std::function<HookPtr(std::shared_ptr<ProcessGroup> group, HookOptions& options, HookPtr inner)>;

/// Where a hook may stand in a text.
enum class HookPlace : std::uint8_t { first, around, both };

/// Adds a hook to those that make_hook knows. InvalidArgument for a name that is taken or is no identifier.
HOOKLINE_EXPORT void register_hook(const std::string& name, HookPlace place, HookFactory factory,
                                   const std::string& description = "");
/// Removes a hook that register_hook added; hooks made of it live on. InvalidArgument for any other name.
HOOKLINE_EXPORT void unregister_hook(const std::string& name);

/// The hook of a text: a name with options in parentheses, then any number of wrappers: "a(x=1, y=word) | b | c(z=2)"
/// is c around b around a. Throws InvalidArgument for a text that cannot be read, saying where, and for names and
/// options that do not exist, listing those that do.
HOOKLINE_EXPORT HookPtr make_hook(std::string_view text, std::shared_ptr<ProcessGroup> group);

/// The wrappers of a text around a hook that has no name: wrap(make_hook(mean_then_clip, group), "log | compare",
/// group).
HOOKLINE_EXPORT HookPtr wrap(HookPtr inner, std::string_view text, std::shared_ptr<ProcessGroup> group);

struct HookDescription {
  std::string name;
  HookPlace place;
  std::string description;
};
/// All hooks that there are, by name.
HOOKLINE_EXPORT std::vector<HookDescription> registered_hooks();

/// The options of a hook, in the order in which its factory asks for them. Makes one, on a group of this thread alone
/// and around a hook that does nothing. Throws what the factory throws, and InvalidArgument for a name that is none.
HOOKLINE_EXPORT std::vector<HookOption> hook_options(const std::string& name);

/// Changes when a library of hooks has to be built anew.
inline constexpr int kHookVersion = 1;

}  // namespace hookline

/// Stands once in a library of hooks, outside all namespaces. `register_all` is a function of no arguments that calls
/// register_hook. The first use of a hook by name loads every libhookline_hook_*.so in the folders of
/// HOOKLINE_HOOK_PATH (separated by colons) and calls it; what it throws reaches the user.
#define HOOKLINE_HOOKS(register_all)                                                          \
  extern "C" HOOKLINE_EXPORT int hookline_hook_version() { return ::hookline::kHookVersion; } \
  extern "C" HOOKLINE_EXPORT void hookline_register_hooks() { register_all(); }
