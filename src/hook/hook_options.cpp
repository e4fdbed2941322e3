// HookOptions: parsing of option values.
#include <algorithm>
#include <charconv>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <hookline/core/error.hpp>
#include <hookline/hook/registry.hpp>

namespace hookline {
namespace {

template <class T>
bool parse_number(const std::string& text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

HookOptions::HookOptions(std::string hook, std::map<std::string, std::string> values, std::string kind)
    : hook_(std::move(hook)), kind_(std::move(kind)), values_(std::move(values)) {}

// An option may be read twice: keeps the first default value and the last description.
const std::string* HookOptions::look_up(const std::string& name, std::string default_value, std::string expected) {
  const auto known = std::ranges::find(options_, name, &HookOption::name);
  if (known == options_.end()) options_.push_back({name, std::move(default_value), std::move(expected)});
  else known->expected = std::move(expected);
  const auto found = values_.find(name);
  return found == values_.end() ? nullptr : &found->second;
}

void HookOptions::throw_invalid(const std::string& name, const std::string& value) const {
  const auto known = std::ranges::find(options_, name, &HookOption::name);
  throw InvalidArgument(
      fmt::format("the {} {}: option {}: expected {}, got '{}'", kind_, hook_, name, known->expected, value));
}

std::int64_t HookOptions::integer(const std::string& name, std::int64_t default_value) {
  const std::string* value = look_up(name, fmt::to_string(default_value), "an integer");
  if (value && !parse_number(*value, default_value)) throw_invalid(name, *value);
  return default_value;
}

double HookOptions::number(const std::string& name, double default_value) {
  const std::string* value = look_up(name, fmt::to_string(default_value), "a number");
  if (value && !parse_number(*value, default_value)) throw_invalid(name, *value);
  return default_value;
}

bool HookOptions::boolean(const std::string& name, bool default_value) {
  const std::string* value = look_up(name, default_value ? "true" : "false", "true or false");
  if (!value) return default_value;
  for (const char* word : {"true", "True", "yes", "on", "1"}) {
    if (*value == word) return true;
  }
  for (const char* word : {"false", "False", "no", "off", "0"}) {
    if (*value == word) return false;
  }
  throw_invalid(name, *value);
}

std::string HookOptions::text(const std::string& name, const std::string& default_value, const std::string& expected) {
  const std::string* value = look_up(name, default_value, expected);
  return value ? *value : default_value;
}

std::string HookOptions::choice(const std::string& name, const std::string& default_value,
                                const std::vector<std::string>& choices) {
  const std::string* value = look_up(name, default_value, fmt::format("one of {}", fmt::join(choices, ", ")));
  if (!value) return default_value;
  if (std::ranges::find(choices, *value) == choices.end()) throw_invalid(name, *value);
  return *value;
}

void HookOptions::check_all_known() const {
  std::vector<std::string_view> names;
  names.reserve(options_.size());
  for (const HookOption& option : options_) names.push_back(option.name);
  for (const auto& [name, value] : values_) {
    if (std::ranges::find(names, name) != names.end()) continue;
    throw InvalidArgument(fmt::format("the {} {} has no option {}; it has: {}", kind_, hook_, name,
                                      names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "))));
  }
}

}  // namespace hookline
