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
#include "hook/hook_spec.hpp"

namespace hookline {
namespace {

struct Entry {
  HookRole role;
  HookFactory factory;
  std::string description;
};

struct Registry {
  std::mutex mutex;
  std::map<std::string, Entry, std::less<>> entries;
};

// As a base hook a cast is a codec; as a wrapper it casts the bucket for its inner hook.
Entry cast_entry(DType dtype, CodecOptions::Format format, const char* description) {
  return {HookRole::either,
          [dtype, format](auto group, HookOptions&, HookPtr inner) -> HookPtr {
            if (inner) return with_cast(std::move(inner), dtype, std::move(group));
            return std::make_shared<CompressHook>(std::move(group), make_codec(CodecOptions{.format = format}));
          },
          description};
}

std::uint64_t seed_of(HookOptions& options) {
  const std::int64_t seed = options.integer("seed", 0);
  if (seed < 0) throw InvalidArgument(fmt::format("option seed: expected at least 0, got {}", seed));
  return static_cast<std::uint64_t>(seed);
}

// Passes options to the codec, which validates them.
Entry quantize_entry(const char* codec, const char* block, const char* range, const char* description) {
  return {HookRole::base,
          [codec, block, range](auto group, HookOptions& options, const HookPtr&) -> HookPtr {
            const std::string values = options.text("block", block, "an integer, or tensor");
            const std::string range_option = options.choice("range", range, {"affine", "symmetric"});
            const std::string rounding = options.choice("rounding", "nearest", {"nearest", "stochastic"});
            const std::string text =
                fmt::format("{}(block={}, range={}, rounding={})", codec, values, range_option, rounding);
            return std::make_shared<CompressHook>(std::move(group), make_codec(text), seed_of(options));
          },
          description};
}

Entry powersgd_entry(bool batched, const char* description) {
  return {HookRole::base,
          [batched](auto group, HookOptions& spec_options, const HookPtr&) -> HookPtr {
            PowerSGDOptions options;
            options.matrix_approximation_rank = spec_options.integer("rank", options.matrix_approximation_rank);
            options.start_powerSGD_iter = spec_options.integer("start_iter", options.start_powerSGD_iter);
            options.min_compression_rate = spec_options.number("min_compression_rate", options.min_compression_rate);
            options.use_error_feedback = spec_options.boolean("error_feedback", options.use_error_feedback);
            options.warm_start = spec_options.boolean("warm_start", options.warm_start);
            options.orthogonalization_epsilon = spec_options.number("epsilon", options.orthogonalization_epsilon);
            options.random_seed = seed_of(spec_options);
            const std::string wire = spec_options.choice("wire", "fp32", {"fp32", "fp16", "bf16"});
            options.wire = wire == "fp16" ? DType::f16 : wire == "bf16" ? DType::bf16 : DType::f32;
            return std::make_shared<PowerSGDHook>(std::make_shared<PowerSGDState>(std::move(group), options), batched);
          },
          description};
}

HookPtr make_per_parameter(std::shared_ptr<ProcessGroup> group, HookOptions& options, HookPtr inner) {
  ParameterFilter filter;
  filter.name = options.text("name", filter.name, "a pattern");
  filter.min_size = options.integer("min_size", filter.min_size);
  if (!options.text("max_size", "", "an integer").empty())
    filter.max_size = options.integer("max_size", filter.max_size);
  filter.dims = static_cast<int>(options.integer("dims", filter.dims));
  return per_parameter(std::move(inner), filter,
                       make_hook(options.text("fallback", "allreduce", "the name of a hook"), std::move(group)));
}

HookPtr make_post_local_sgd(const std::shared_ptr<ProcessGroup>& group, HookOptions& options) {
  const std::int64_t start = options.integer("start_iter", 1000);
  const std::int64_t size = options.integer("group_size", 0);
  const bool allreduce = options.boolean("gradient_allreduce", true);
  options.check_all_known();  // before any communication
  std::shared_ptr<ProcessGroup> subgroup;
  if (size != 0 && allreduce)
    subgroup = fixed_size_subgroup(group, static_cast<int>(std::clamp<std::int64_t>(size, -1, INT_MAX)));
  return std::make_shared<PostLocalSGDHook>(
      std::make_shared<PostLocalSGDState>(group, std::move(subgroup), start, allreduce));
}

// Built-in hooks. Programs add their own with register_hook.
std::map<std::string, Entry, std::less<>> builtin_entries() {
  return {
      {"allreduce",
       {HookRole::base, [](auto group, auto&, auto) { return std::make_shared<AllreduceHook>(std::move(group)); },
        "averages over all ranks"}},
      {"fp16", cast_entry(DType::f16, CodecOptions::Format::float16,
                          "sends gradients as float16; as a wrapper, casts them to float16 for the inner hook")},
      {"bf16", cast_entry(DType::bf16, CodecOptions::Format::bfloat16,
                          "sends gradients as bfloat16; as a wrapper, casts them to bfloat16 for the inner hook")},
      {"int8", quantize_entry("int8", "512", "affine", "sends gradients as 8-bit integers with one scale per block")},
      {"int4",
       quantize_entry("int4", "128", "symmetric", "sends gradients as 4-bit integers with one scale per block")},
      {"quantize_per_tensor",
       quantize_entry("int8", "tensor", "affine", "sends gradients as 8-bit integers with one scale per bucket")},
      {"quantize_per_channel",
       quantize_entry("int8", "512", "affine", "PyTorch's name of int8 with blocks of 512 values")},
      {"powersgd", powersgd_entry(false, "sends a low-rank approximation of each matrix")},
      {"batched_powersgd", powersgd_entry(true, "sends a low-rank approximation of each bucket as one square matrix")},
      {"error_feedback",
       {HookRole::wrapper, [](auto, auto&, HookPtr inner) { return with_error_feedback(std::move(inner)); },
        "adds the compression error to the next step's gradients"}},
      {"where",
       {HookRole::wrapper, make_per_parameter, "runs the hook on some parameters and a fallback hook on the rest"}},
      {"log",
       {HookRole::wrapper, [](auto, auto&, HookPtr inner) { return with_logging(std::move(inner)); },
        "logs a line per bucket to standard error"}},
      {"compare",
       {HookRole::wrapper,
        [](auto group, auto&, HookPtr inner) { return with_error_measurement(std::move(inner), std::move(group)); },
        "measures the relative error against the exact mean"}},
      {"post_local_sgd",
       {HookRole::base, [](auto group, auto& given, auto) { return make_post_local_sgd(group, given); },
        "averages over all ranks, and after start_iter steps over the ranks of the host"}},
      {"noop",
       {HookRole::base, [](auto, auto&, auto) { return std::make_shared<NoopHook>(); },
        "sends nothing; each rank keeps its own gradients"}},
  };
}

Registry& registry() {
  static Registry all{.mutex = {}, .entries = builtin_entries()};
  return all;
}

/// Returns the entry of a hook, after loading the hook libraries. Throws InvalidArgument listing the known hooks.
Entry find_entry(const std::string& name, std::string_view spec) {
  hook::load_hook_libraries();
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  const auto found = all.entries.find(name);
  if (found != all.entries.end()) return found->second;
  std::vector<std::string> names;
  names.reserve(all.entries.size());
  for (const auto& [known, entry] : all.entries) names.push_back(known);
  throw InvalidArgument(
      fmt::format("invalid hook spec '{}': no hook is called {}; there are {}", spec, name, fmt::join(names, ", ")));
}

/// Returns the spec with term `first` moved to the front.
std::string reordered(const std::vector<hook::SpecTerm>& terms, std::size_t first) {
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < terms.size(); ++i) {
    std::vector<std::string> options;
    for (const auto& [name, value] : terms[i].options) options.push_back(fmt::format("{}={}", name, value));
    std::string text = terms[i].name;
    if (!options.empty()) text += fmt::format("({})", fmt::join(options, ", "));
    texts.insert(i == first ? texts.begin() : texts.end(), std::move(text));
  }
  return fmt::format("{}", fmt::join(texts, " | "));
}

/// Throws InvalidArgument with a corrected spec if a wrapper comes first or a base hook comes later.
void check_roles(const std::vector<hook::SpecTerm>& terms, std::string_view spec) {
  std::vector<HookRole> roles;
  roles.reserve(terms.size());
  for (const hook::SpecTerm& term : terms) roles.push_back(find_entry(term.name, spec).role);
  if (roles[0] == HookRole::wrapper) {
    const auto hook = std::ranges::find_if(roles, [](HookRole role) { return role != HookRole::wrapper; });
    throw InvalidArgument(
        fmt::format("invalid hook spec '{}': {} is a wrapper and cannot come first; write '{}'", spec, terms[0].name,
                    hook == roles.end() ? fmt::format("allreduce | {}", spec)
                                        : reordered(terms, static_cast<std::size_t>(hook - roles.begin()))));
  }
  for (std::size_t i = 1; i < terms.size(); ++i) {
    if (roles[i] != HookRole::base) continue;
    throw InvalidArgument(
        fmt::format("invalid hook spec '{}': {} cannot be wrapped around another hook; {}", spec, terms[i].name,
                    roles[0] == HookRole::either ? fmt::format("write '{}'", reordered(terms, i))
                                                 : fmt::format("write either {} or {}", terms[0].name, terms[i].name)));
  }
}

/// Creates the hooks of a spec from the inside out, starting from `hook` unless it is null.
HookPtr build_hook(HookPtr hook, std::string_view spec, const std::shared_ptr<ProcessGroup>& group) {
  std::vector<hook::SpecTerm> terms = hook::parse_hook_spec(spec);
  if (!hook) check_roles(terms, spec);
  for (hook::SpecTerm& term : terms) {
    const Entry entry = find_entry(term.name, spec);
    if (entry.role == HookRole::base && hook) {
      throw InvalidArgument(
          fmt::format("wrap '{}' around {}: {} cannot be wrapped around another hook", spec, hook->name(), term.name));
    }
    HookOptions options(term.name, std::move(term.options));
    hook = entry.factory(group, options, std::move(hook));
    if (!hook) throw InvalidArgument(fmt::format("hook spec '{}': the factory of {} returned null", spec, term.name));
    options.check_all_known();
  }
  return hook;
}

}  // namespace

void register_hook(const std::string& name, HookRole role, HookFactory factory, const std::string& description) {
  if (!hook::is_identifier(name)) {
    throw InvalidArgument(fmt::format(
        "register_hook: the name '{}' is not an identifier: expected letters, digits and underscores, no digit first",
        name));
  }
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  if (!all.entries.try_emplace(name, Entry{role, std::move(factory), description}).second) {
    throw InvalidArgument(fmt::format("register_hook: the hook {} is already registered; choose another name", name));
  }
}

void unregister_hook(const std::string& name) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  if (builtin_entries().contains(name) || all.entries.erase(name) == 0) {
    throw InvalidArgument(fmt::format("unregister_hook: no hook was registered under the name '{}'", name));
  }
}

HookPtr make_hook(std::string_view spec, std::shared_ptr<ProcessGroup> group) {
  if (!group) throw InvalidArgument(fmt::format("make_hook('{}'): process group must not be null", spec));
  HookPtr hook = build_hook(nullptr, spec, group);
  hook->set_spec(std::string(spec));
  return hook;
}

HookPtr HookOrSpec::make(const std::shared_ptr<ProcessGroup>& group) const {
  return spec_.empty() ? hook_ : make_hook(spec_, group);
}

HookPtr wrap(HookPtr inner, std::string_view spec, std::shared_ptr<ProcessGroup> group) {
  if (!inner) throw InvalidArgument(fmt::format("wrap '{}': inner hook must not be null", spec));
  if (!group)
    throw InvalidArgument(fmt::format("wrap '{}' around {}: process group must not be null", spec, inner->name()));
  return build_hook(std::move(inner), spec, group);
}

std::vector<HookDescription> registered_hooks() {
  hook::load_hook_libraries();
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  std::vector<HookDescription> result;
  result.reserve(all.entries.size());
  for (const auto& [name, entry] : all.entries) result.push_back({name, entry.role, entry.description});
  return result;
}

std::vector<HookOption> hook_options(const std::string& name) {
  const Entry entry = find_entry(name, name);
  const auto single_rank_group = make_group(make_threads_backends(1)[0], Milliseconds(10'000));
  HookOptions options(name, {});
  options.set_listing();
  (void)entry.factory(single_rank_group, options,
                      entry.role == HookRole::wrapper ? std::make_shared<NoopHook>() : nullptr);
  return options.options();
}

}  // namespace hookline
