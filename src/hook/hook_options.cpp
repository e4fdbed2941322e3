// The options of a hook, read as the types that it asks for.
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

const std::string* HookOptions::find(const std::string& name) {
  if (std::find(asked_.begin(), asked_.end(), name) == asked_.end()) asked_.push_back(name);
  const auto found = given_.find(name);
  return found == given_.end() ? nullptr : &found->second;
}

void HookOptions::refuse(const std::string& name, const std::string& value, std::string_view expected) const {
  throw InvalidArgument(
      fmt::format("the {} {}: option {} is '{}', and must be {}", what_, hook_, name, value, expected));
}

std::int64_t HookOptions::integer(const std::string& name, std::int64_t otherwise) {
  const std::string* given = find(name);
  if (given && !read(*given, otherwise)) refuse(name, *given, "a whole number");
  return otherwise;
}

double HookOptions::number(const std::string& name, double otherwise) {
  const std::string* given = find(name);
  if (given && !read(*given, otherwise)) refuse(name, *given, "a number");
  return otherwise;
}

bool HookOptions::boolean(const std::string& name, bool otherwise) {
  const std::string* given = find(name);
  if (!given) return otherwise;
  for (const char* word : {"true", "True", "yes", "on", "1"}) {
    if (*given == word) return true;
  }
  for (const char* word : {"false", "False", "no", "off", "0"}) {
    if (*given == word) return false;
  }
  refuse(name, *given, "true or false");
}

std::string HookOptions::text(const std::string& name, const std::string& otherwise) {
  const std::string* given = find(name);
  return given ? *given : otherwise;
}

std::string HookOptions::word(const std::string& name, const std::string& otherwise,
                              const std::vector<std::string>& words) {
  std::string value = text(name, otherwise);
  if (std::find(words.begin(), words.end(), value) == words.end()) {
    refuse(name, value, fmt::format("one of {}", fmt::join(words, ", ")));
  }
  return value;
}

void HookOptions::check_all_known() const {
  for (const auto& [name, value] : given_) {
    if (std::find(asked_.begin(), asked_.end(), name) != asked_.end()) continue;
    throw InvalidArgument(fmt::format("the {} {} has no option {}; it has: {}", what_, hook_, name,
                                      asked_.empty() ? "none" : fmt::format("{}", fmt::join(asked_, ", "))));
  }
}

}  // namespace hookline
