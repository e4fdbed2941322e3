// Hook registry: built-in hooks, and hooks created from specs.
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

// As a base hook a cast is a codec; as a wrapper it casts the bucket for its inner hook.
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
  if (seed < 0) throw InvalidArgument(fmt::format("option seed: expected at least 0, got {}", seed));
  return static_cast<std::uint64_t>(seed);
}

// Passes options to the codec, which validates them.
Entry integers(const char* codec, const char* block, const char* range, const char* description) {
  return {HookPlace::first,
          [codec, block, range](auto group, HookOptions& given, const HookPtr&) -> HookPtr {
            const std::string values = given.text("block", block, "an integer, or tensor");
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
  if (!given.text("max_size", "", "an integer").empty()) rule.max_size = given.integer("max_size", rule.max_size);
  rule.dims = static_cast<int>(given.integer("dims", rule.dims));
  return where(std::move(inner), rule,
               make_hook(given.text("otherwise", "allreduce", "the name of a hook"), std::move(group)));
}

HookPtr make_post_local_sgd(const std::shared_ptr<ProcessGroup>& group, HookOptions& given) {
  const std::int64_t start = given.integer("start_iter", 1000);
  const std::int64_t size = given.integer("group_size", 0);
  const bool allreduce = given.boolean("gradient_allreduce", true);
  given.check_all_known();  // before any communication
  std::shared_ptr<ProcessGroup> part;
  if (size != 0 && allreduce)
    part = group_of_size(group, static_cast<int>(std::clamp<std::int64_t>(size, -1, INT_MAX)));
  return std::make_shared<PostLocalSGDHook>(
      std::make_shared<PostLocalSGDState>(group, std::move(part), start, allreduce));
}

// Built-in hooks. Programs add their own with register_hook.
std::map<std::string, Entry, std::less<>> builtin_hooks() {
  return {
      {"allreduce",
       {HookPlace::first, [](auto group, auto&, auto) { return std::make_shared<AllreduceHook>(std::move(group)); },
        "averages over all ranks"}},
      {"fp16", half(DType::f16, CodecOptions::Format::float16,
                    "sends gradients as float16; as a wrapper, casts them to float16 for the inner hook")},
      {"bf16", half(DType::bf16, CodecOptions::Format::bfloat16,
                    "sends gradients as bfloat16; as a wrapper, casts them to bfloat16 for the inner hook")},
      {"int8", integers("int8", "512", "affine", "sends gradients as 8-bit integers with one scale per block")},
      {"int4", integers("int4", "128", "symmetric", "sends gradients as 4-bit integers with one scale per block")},
      {"quantize_per_tensor",
       integers("int8", "tensor", "affine", "sends gradients as 8-bit integers with one scale per bucket")},
      {"quantize_per_channel", integers("int8", "512", "affine", "PyTorch's name of int8 with blocks of 512 values")},
      {"powersgd", powersgd(false, "sends a low-rank approximation of each matrix")},
      {"batched_powersgd", powersgd(true, "sends a low-rank approximation of each bucket as one square matrix")},
      {"error_feedback",
       {HookPlace::around, [](auto, auto&, HookPtr inner) { return error_feedback(std::move(inner)); },
        "adds the compression error to the next step's gradients"}},
      {"where", {HookPlace::around, make_where, "runs the hook on some parameters and a fallback hook on the rest"}},
      {"log",
       {HookPlace::around, [](auto, auto&, HookPtr inner) { return logged(std::move(inner)); },
        "logs a line per bucket to standard error"}},
      {"compare",
       {HookPlace::around,
        [](auto group, auto&, HookPtr inner) { return compared_with_exact(std::move(inner), std::move(group)); },
        "measures the relative error against the exact mean"}},
      {"post_local_sgd",
       {HookPlace::first, [](auto group, auto& given, auto) { return make_post_local_sgd(group, given); },
        "averages over all ranks, and after start_iter steps over the ranks of the host"}},
      {"noop",
       {HookPlace::first, [](auto, auto&, auto) { return std::make_shared<NoopHook>(); },
        "sends nothing; each rank keeps its own gradients"}},
  };
}

Registry& registry() {
  static Registry all{.mutex = {}, .entries = builtin_hooks()};
  return all;
}

/// Returns the entry of a hook, after loading the hook libraries. Throws InvalidArgument listing the known hooks.
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
      fmt::format("invalid hook spec '{}': no hook is called {}; there are {}", text, name, fmt::join(names, ", ")));
}

/// Returns the spec with term `first` moved to the front.
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

/// Throws InvalidArgument with a corrected spec if a wrapper comes first or a base hook comes later.
void check_places(const std::vector<hook::HookPart>& parts, std::string_view text) {
  std::vector<HookPlace> places;
  places.reserve(parts.size());
  for (const hook::HookPart& part : parts) places.push_back(find(part.name, text).place);
  if (places[0] == HookPlace::around) {
    const auto hook = std::ranges::find_if(places, [](HookPlace place) { return place != HookPlace::around; });
    throw InvalidArgument(fmt::format("invalid hook spec '{}': {} is a wrapper and cannot come first; write '{}'", text,
                                      parts[0].name,
                                      hook == places.end()
                                          ? fmt::format("allreduce | {}", text)
                                          : reordered(parts, static_cast<std::size_t>(hook - places.begin()))));
  }
  for (std::size_t i = 1; i < parts.size(); ++i) {
    if (places[i] != HookPlace::first) continue;
    throw InvalidArgument(fmt::format(
        "invalid hook spec '{}': {} cannot be wrapped around another hook; {}", text, parts[i].name,
        places[0] == HookPlace::both ? fmt::format("write '{}'", reordered(parts, i))
                                     : fmt::format("write either {} or {}", parts[0].name, parts[i].name)));
  }
}

/// Creates the hooks of a spec from the inside out, starting from `hook` unless it is null.
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
    if (!hook) throw InvalidArgument(fmt::format("hook spec '{}': the factory of {} returned null", text, part.name));
    options.check_all_known();
  }
  return hook;
}

}  // namespace

void register_hook(const std::string& name, HookPlace place, HookFactory factory, const std::string& description) {
  if (!hook::is_identifier(name)) {
    throw InvalidArgument(fmt::format(
        "register_hook: the name '{}' is not an identifier: expected letters, digits and underscores, no digit first",
        name));
  }
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  if (!all.entries.try_emplace(name, Entry{place, std::move(factory), description}).second) {
    throw InvalidArgument(fmt::format("register_hook: the hook {} is already registered; choose another name", name));
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
  if (!group) throw InvalidArgument(fmt::format("make_hook('{}'): process group must not be null", text));
  HookPtr hook = made_around(nullptr, text, group);
  hook->set_text(std::string(text));
  return hook;
}

HookPtr wrap(HookPtr inner, std::string_view text, std::shared_ptr<ProcessGroup> group) {
  if (!inner) throw InvalidArgument(fmt::format("wrap '{}': inner hook must not be null", text));
  if (!group)
    throw InvalidArgument(fmt::format("wrap '{}' around {}: process group must not be null", text, inner->name()));
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
