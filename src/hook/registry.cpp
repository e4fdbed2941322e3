// The hooks that have a name, and how a text becomes one of them.
#include <hookline/hook/registry.hpp>

#include <algorithm>
#include <climits>
#include <mutex>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <hookline/backend/threads.hpp>
#include <hookline/codec/make_codec.hpp>
#include <hookline/core/error.hpp>
#include <hookline/group/subgroups.hpp>
#include <hookline/hook/builtin_hooks.hpp>
#include <hookline/hook/compress_hook.hpp>
#include <hookline/hook/post_local_sgd.hpp>
#include <hookline/hook/powersgd.hpp>
#include <hookline/hook/wrappers.hpp>

#include "hook/hook_libraries.hpp"
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

// A cast is a codec where it stands first, and has another hook work on 16 bits where it stands around one.
Entry half(DType dtype, CodecOptions::Format format, const char* description) {
  return {HookPlace::both,
          [dtype, format](auto group, HookOptions&, HookPtr inner) -> HookPtr {
            if (inner) return cast_around(std::move(inner), dtype, std::move(group));
            return std::make_shared<CompressHook>(std::move(group), make_codec(CodecOptions{.format = format}));
          },
          description};
}

std::uint64_t seed_of(HookOptions& given) {
  const std::int64_t seed = given.integer("seed", 0);
  if (seed < 0) throw InvalidArgument(fmt::format("option seed is {}, and must be at least 0", seed));
  return static_cast<std::uint64_t>(seed);
}

// Options of the codec's go to the codec, which knows what they may be.
Entry integers(const char* codec, const char* block, const char* range, const char* description) {
  return {HookPlace::first,
          [codec, block, range](auto group, HookOptions& given, const HookPtr&) -> HookPtr {
            const std::string values = given.text("block", block, "a whole number, or tensor");
            const std::string between = given.word("range", range, {"affine", "symmetric"});
            const std::string rounding = given.word("rounding", "nearest", {"nearest", "stochastic"});
            const std::string text =
                fmt::format("{}(block={}, range={}, rounding={})", codec, values, between, rounding);
            return std::make_shared<CompressHook>(std::move(group), make_codec(text), seed_of(given));
          },
          description};
}

Entry powersgd(bool batched, const char* description) {
  return {HookPlace::first,
          [batched](auto group, HookOptions& given, const HookPtr&) -> HookPtr {
            PowerSGDOptions options;
            options.matrix_approximation_rank = given.integer("rank", options.matrix_approximation_rank);
            options.start_powerSGD_iter = given.integer("start_iter", options.start_powerSGD_iter);
            options.min_compression_rate = given.number("min_compression_rate", options.min_compression_rate);
            options.use_error_feedback = given.boolean("error_feedback", options.use_error_feedback);
            options.warm_start = given.boolean("warm_start", options.warm_start);
            options.orthogonalization_epsilon = given.number("epsilon", options.orthogonalization_epsilon);
            options.random_seed = seed_of(given);
            const std::string wire = given.word("wire", "fp32", {"fp32", "fp16", "bf16"});
            options.wire = wire == "fp16" ? DType::f16 : wire == "bf16" ? DType::bf16 : DType::f32;
            return std::make_shared<PowerSGDHook>(std::make_shared<PowerSGDState>(std::move(group), options), batched);
          },
          description};
}

HookPtr make_where(std::shared_ptr<ProcessGroup> group, HookOptions& given, HookPtr inner) {
  ParameterRule rule;
  rule.name = given.text("name", rule.name, "a pattern");
  rule.min_size = given.integer("min_size", rule.min_size);
  if (!given.text("max_size", "", "a whole number").empty()) rule.max_size = given.integer("max_size", rule.max_size);
  rule.dims = static_cast<int>(given.integer("dims", rule.dims));
  return where(std::move(inner), rule,
               make_hook(given.text("otherwise", "allreduce", "the name of a hook"), std::move(group)));
}

HookPtr make_post_local_sgd(const std::shared_ptr<ProcessGroup>& group, HookOptions& given) {
  const std::int64_t start = given.integer("start_iter", 1000);
  const std::int64_t size = given.integer("group_size", 0);
  const bool allreduce = given.boolean("gradient_allreduce", true);
  given.check_all_known();  // before the ranks talk to each other
  std::shared_ptr<ProcessGroup> part;
  if (size != 0 && allreduce)
    part = group_of_size(group, static_cast<int>(std::clamp<std::int64_t>(size, -1, INT_MAX)));
  return std::make_shared<PostLocalSGDHook>(
      std::make_shared<PostLocalSGDState>(group, std::move(part), start, allreduce));
}

// A hook of the library's is added here, in a line; a hook of a program's by register_hook.
std::map<std::string, Entry, std::less<>> builtin_hooks() {
  return {
      {"allreduce",
       {HookPlace::first, [](auto group, auto&, auto) { return std::make_shared<AllreduceHook>(std::move(group)); },
        "the mean over all ranks"}},
      {"fp16", half(DType::f16, CodecOptions::Format::float16,
                    "gradients travel as float16; around a hook, it works on them as float16")},
      {"bf16", half(DType::bf16, CodecOptions::Format::bfloat16,
                    "gradients travel as bfloat16; around a hook, it works on them as bfloat16")},
      {"int8", integers("int8", "512", "affine", "gradients travel as 8-bit integers, with a scale for each block")},
      {"int4", integers("int4", "128", "symmetric", "gradients travel as 4-bit integers, with a scale for each block")},
      {"quantize_per_tensor",
       integers("int8", "tensor", "affine", "gradients travel as 8-bit integers, with one scale for a bucket")},
      {"quantize_per_channel",
       integers("int8", "512", "affine", "gradients travel as 8-bit integers, under PyTorch's name for it")},
      {"powersgd", powersgd(false, "two thin factors of each matrix travel")},
      {"batched_powersgd", powersgd(true, "two thin factors of the whole bucket as a square travel")},
      {"error_feedback",
       {HookPlace::around, [](auto, auto&, HookPtr inner) { return error_feedback(std::move(inner)); },
        "adds what was lost to the next step's gradients"}},
      {"where", {HookPlace::around, make_where, "the hook for some parameters, another for the rest"}},
      {"log",
       {HookPlace::around, [](auto, auto&, HookPtr inner) { return logged(std::move(inner)); },
        "writes a line for each bucket to standard error"}},
      {"compare",
       {HookPlace::around,
        [](auto group, auto&, HookPtr inner) { return compared_with_exact(std::move(inner), std::move(group)); },
        "measures how far the result is from the exact mean"}},
      {"post_local_sgd",
       {HookPlace::first, [](auto group, auto& given, auto) { return make_post_local_sgd(group, given); },
        "the mean over all ranks, and from some step on over those of the host"}},
      {"noop",
       {HookPlace::first, [](auto, auto&, auto) { return std::make_shared<NoopHook>(); },
        "sends nothing: each rank keeps its own gradients"}},
  };
}

Registry& registry() {
  static Registry all{.mutex = {}, .entries = builtin_hooks()};
  return all;
}

/// The names of what load_hook_libraries() has found count, too.
Entry find(const std::string& name, std::string_view text) {
  hook::load_hook_libraries();
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  const auto found = all.entries.find(name);
  if (found != all.entries.end()) return found->second;
  std::vector<std::string> names;
  names.reserve(all.entries.size());
  for (const auto& [known, entry] : all.entries) names.push_back(known);
  throw InvalidArgument(
      fmt::format("the hook '{}': no hook is called {}; there are {}", text, name, fmt::join(names, ", ")));
}

/// A text with the part `first` before all others.
std::string reordered(const std::vector<hook::HookPart>& parts, std::size_t first) {
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    std::vector<std::string> options;
    for (const auto& [name, value] : parts[i].options) options.push_back(fmt::format("{}={}", name, value));
    std::string text = parts[i].name;
    if (!options.empty()) text += fmt::format("({})", fmt::join(options, ", "));
    texts.insert(i == first ? texts.begin() : texts.end(), std::move(text));
  }
  return fmt::format("{}", fmt::join(texts, " | "));
}

/// Throws InvalidArgument that says how to write a text in which a wrapper stands first or a hook stands later.
void check_places(const std::vector<hook::HookPart>& parts, std::string_view text) {
  std::vector<HookPlace> places;
  places.reserve(parts.size());
  for (const hook::HookPart& part : parts) places.push_back(find(part.name, text).place);
  if (places[0] == HookPlace::around) {
    const auto hook = std::ranges::find_if(places, [](HookPlace place) { return place != HookPlace::around; });
    throw InvalidArgument(fmt::format("the hook '{}': {} is wrapped around a hook; write '{}'", text, parts[0].name,
                                      hook == places.end()
                                          ? fmt::format("allreduce | {}", text)
                                          : reordered(parts, static_cast<std::size_t>(hook - places.begin()))));
  }
  for (std::size_t i = 1; i < parts.size(); ++i) {
    if (places[i] != HookPlace::first) continue;
    throw InvalidArgument(fmt::format(
        "the hook '{}': {} cannot be wrapped around another hook; {}", text, parts[i].name,
        places[0] == HookPlace::both ? fmt::format("write '{}'", reordered(parts, i))
                                     : fmt::format("write one of {}, {} only", parts[0].name, parts[i].name)));
  }
}

/// Makes the hooks of a text one around the other, the first one around `hook` where there is one.
HookPtr made_around(HookPtr hook, std::string_view text, const std::shared_ptr<ProcessGroup>& group) {
  std::vector<hook::HookPart> parts = hook::read_hook_text(text);
  if (!hook) check_places(parts, text);
  for (hook::HookPart& part : parts) {
    const Entry entry = find(part.name, text);
    if (entry.place == HookPlace::first && hook) {
      throw InvalidArgument(
          fmt::format("wrap '{}' around {}: {} cannot be wrapped around another hook", text, hook->name(), part.name));
    }
    HookOptions options(part.name, std::move(part.options));
    hook = entry.factory(group, options, std::move(hook));
    if (!hook) throw InvalidArgument(fmt::format("the hook '{}': the factory of {} returned none", text, part.name));
    options.check_all_known();
  }
  return hook;
}

}  // namespace

void register_hook(const std::string& name, HookPlace place, HookFactory factory, const std::string& description) {
  if (!hook::is_identifier(name)) {
    throw InvalidArgument(fmt::format(
        "register_hook: the name '{}' is no identifier: expected letters, digits and underscores, no digit first",
        name));
  }
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  if (!all.entries.try_emplace(name, Entry{place, std::move(factory), description}).second) {
    throw InvalidArgument(fmt::format("register_hook: there is a hook called {} already; choose another name", name));
  }
}

void unregister_hook(const std::string& name) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  if (builtin_hooks().contains(name) || all.entries.erase(name) == 0) {
    throw InvalidArgument(fmt::format("unregister_hook: no hook was registered under the name '{}'", name));
  }
}

HookPtr make_hook(std::string_view text, std::shared_ptr<ProcessGroup> group) {
  if (!group) throw InvalidArgument(fmt::format("make_hook('{}') needs a process group", text));
  HookPtr hook = made_around(nullptr, text, group);
  hook->set_text(std::string(text));
  return hook;
}

HookPtr wrap(HookPtr inner, std::string_view text, std::shared_ptr<ProcessGroup> group) {
  if (!inner) throw InvalidArgument(fmt::format("wrap: there is no hook to wrap '{}' around", text));
  if (!group) throw InvalidArgument(fmt::format("wrap '{}' around {}: a process group is needed", text, inner->name()));
  return made_around(std::move(inner), text, group);
}

std::vector<HookDescription> registered_hooks() {
  hook::load_hook_libraries();
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  std::vector<HookDescription> result;
  result.reserve(all.entries.size());
  for (const auto& [name, entry] : all.entries) result.push_back({name, entry.place, entry.description});
  return result;
}

std::vector<HookOption> hook_options(const std::string& name) {
  const Entry entry = find(name, name);
  const auto alone = make_group(make_threads_backends(1)[0], Milliseconds(10'000));
  HookOptions options(name, {});
  options.set_listing();
  (void)entry.factory(alone, options, entry.place == HookPlace::around ? std::make_shared<NoopHook>() : nullptr);
  return options.asked();
}

}  // namespace hookline
