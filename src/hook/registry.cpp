// The hooks that have a name, and how a text becomes one of them.
#include <hookline/hook/registry.hpp>

#include <mutex>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <hookline/core/error.hpp>
#include <hookline/hook/builtin_hooks.hpp>

#include "hook/hook_text.hpp"

namespace hookline {
namespace {

struct Entry {
  HookPlace place;
  HookFactory factory;
  std::string description;
};

struct Registry {
  std::mutex mutex;
  std::map<std::string, Entry, std::less<>> entries;
};

// A hook of the library's is added here, in a line; a hook of a program's by register_hook.
std::map<std::string, Entry, std::less<>> builtin_hooks() {
  return {
      {"allreduce",
       {HookPlace::first, [](auto group, auto&, auto) { return std::make_shared<AllreduceHook>(std::move(group)); },
        "the mean over all ranks"}},
      {"noop",
       {HookPlace::first, [](auto, auto&, auto) { return std::make_shared<NoopHook>(); },
        "sends nothing: each rank keeps its own gradients"}},
  };
}

Registry& registry() {
  static Registry all{.mutex = {}, .entries = builtin_hooks()};
  return all;
}

Entry find(const std::string& name, std::string_view text) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  const auto found = all.entries.find(name);
  if (found != all.entries.end()) return found->second;
  std::vector<std::string> names;
  for (const auto& [known, entry] : all.entries) names.push_back(known);
  throw InvalidArgument(
      fmt::format("the hook '{}': no hook is called {}; there are {}", text, name, fmt::join(names, ", ")));
}

}  // namespace

void register_hook(const std::string& name, HookPlace place, HookFactory factory, const std::string& description) {
  if (!hook::is_identifier(name)) throw InvalidArgument(fmt::format("register_hook: '{}' is no identifier", name));
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  if (!all.entries.try_emplace(name, Entry{place, std::move(factory), description}).second) {
    throw InvalidArgument(fmt::format("register_hook: there is a hook called {} already", name));
  }
}

HookPtr make_hook(std::string_view text, std::shared_ptr<ProcessGroup> group) {
  if (!group) throw InvalidArgument(fmt::format("make_hook('{}') needs a process group", text));
  HookPtr hook;
  for (hook::HookPart& part : hook::read_hook_text(text)) {
    const Entry entry = find(part.name, text);
    if (entry.place == HookPlace::first && hook) {
      throw InvalidArgument(fmt::format("the hook '{}': {} cannot be wrapped around another hook", text, part.name));
    }
    if (entry.place == HookPlace::around && !hook) {
      throw InvalidArgument(fmt::format("the hook '{}': {} is wrapped around a hook; write 'allreduce | {}'", text,
                                        part.name, part.name));
    }
    HookOptions options(part.name, std::move(part.options));
    hook = entry.factory(group, options, std::move(hook));
    options.check_all_known();
  }
  return hook;
}

std::vector<HookDescription> registered_hooks() {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  std::vector<HookDescription> result;
  for (const auto& [name, entry] : all.entries) result.push_back({name, entry.place, entry.description});
  return result;
}

}  // namespace hookline
