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
bool read(const std::string& text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

HookOptions::HookOptions(std::string hook, std::map<std::string, std::string> given, std::string what)
    : hook_(std::move(hook)), what_(std::move(what)), given_(std::move(given)) {}

// An option may be read twice: keeps the first default value and the last description.
const std::string* HookOptions::find(const std::string& name, std::string otherwise, std::string expected) {
  const auto known = std::ranges::find(asked_, name, &HookOption::name);
  if (known == asked_.end()) asked_.push_back({name, std::move(otherwise), std::move(expected)});
  else known->expected = std::move(expected);
  const auto found = given_.find(name);
  return found == given_.end() ? nullptr : &found->second;
}

void HookOptions::refuse(const std::string& name, const std::string& value) const {
  const auto known = std::ranges::find(asked_, name, &HookOption::name);
  throw InvalidArgument(
      fmt::format("the {} {}: option {}: expected {}, got '{}'", what_, hook_, name, known->expected, value));
}

std::int64_t HookOptions::integer(const std::string& name, std::int64_t otherwise) {
  const std::string* given = find(name, fmt::to_string(otherwise), "an integer");
  if (given && !read(*given, otherwise)) refuse(name, *given);
  return otherwise;
}

double HookOptions::number(const std::string& name, double otherwise) {
  const std::string* given = find(name, fmt::to_string(otherwise), "a number");
  if (given && !read(*given, otherwise)) refuse(name, *given);
  return otherwise;
}

bool HookOptions::boolean(const std::string& name, bool otherwise) {
  const std::string* given = find(name, otherwise ? "true" : "false", "true or false");
  if (!given) return otherwise;
  for (const char* word : {"true", "True", "yes", "on", "1"}) {
    if (*given == word) return true;
  }
  for (const char* word : {"false", "False", "no", "off", "0"}) {
    if (*given == word) return false;
  }
  refuse(name, *given);
}

std::string HookOptions::text(const std::string& name, const std::string& otherwise, const std::string& expected) {
  const std::string* given = find(name, otherwise, expected);
  return given ? *given : otherwise;
}

std::string HookOptions::word(const std::string& name, const std::string& otherwise,
                              const std::vector<std::string>& words) {
  const std::string* given = find(name, otherwise, fmt::format("one of {}", fmt::join(words, ", ")));
  if (!given) return otherwise;
  if (std::ranges::find(words, *given) == words.end()) refuse(name, *given);
  return *given;
}

void HookOptions::check_all_known() const {
  std::vector<std::string_view> names;
  names.reserve(asked_.size());
  for (const HookOption& option : asked_) names.push_back(option.name);
  for (const auto& [name, value] : given_) {
    if (std::ranges::find(names, name) != names.end()) continue;
    throw InvalidArgument(fmt::format("the {} {} has no option {}; it has: {}", what_, hook_, name,
                                      names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "))));
  }
}

}  // namespace hookline
