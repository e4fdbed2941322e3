// Translates errors of the sub-backends into errors of the group.
#include "backend/layered/levels.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <hookline/core/error.hpp>

namespace hookline::layered {
namespace {

// Markers in the text of an abort: after the first one, ranks are already those of the group; the second one marks
// PeerLost.
constexpr std::string_view kWhole = "in the hierarchical group: ";
constexpr std::string_view kLost = "a peer was lost: ";
constexpr std::string_view kEndOfRanks = "] ";

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

// Replaces the numbers after every "rank" and "ranks" by the ranks of the group.
std::string renumbered(std::string_view text, const std::vector<int>& ranks) {
  std::string out;
  std::size_t at = 0;
  const auto copy_number = [&] {
    std::size_t number = 0;
    const std::size_t begin = at;
    for (; at < text.size() && is_digit(text[at]) && at - begin < 6; ++at) {
      number = number * 10 + static_cast<std::size_t>(text[at] - '0');
    }
    out += number < ranks.size() ? std::to_string(ranks[number]) : std::string(text.substr(begin, at - begin));
  };
  while (at < text.size()) {
    const bool word = text.substr(at).starts_with("ank ") || text.substr(at).starts_with("anks ");
    out += text[at++];
    if (!word) continue;
    while (at < text.size() && text[at - 1] != ' ') out += text[at++];
    while (at < text.size() && is_digit(text[at])) {
      copy_number();
      if (!text.substr(at).starts_with(", ") || at + 2 >= text.size() || !is_digit(text[at + 2])) break;
      out += ", ";
      at += 2;
    }
  }
  return out;
}

// Removes a list "[1, 2] " from the beginning of `text` and returns its ranks.
std::vector<int> take_ranks(std::string_view& text) {
  std::vector<int> ranks;
  const std::size_t end = text.find(kEndOfRanks);
  if (!text.starts_with('[') || end == std::string_view::npos) return ranks;
  const char* at = text.data() + 1;
  const char* const last = text.data() + end;
  for (int rank = 0; at < last;) {
    const auto [next, error] = std::from_chars(at, last, rank);
    if (error != std::errc()) break;
    ranks.push_back(rank);
    at = std::min(next + 2, last);
  }
  text.remove_prefix(end + kEndOfRanks.size());
  return ranks;
}

template <class E>
std::exception_ptr translated(const E& error, const std::vector<int>& ranks) {
  const std::string_view text = error.what();
  const std::size_t quoted = text.find(kWhole);
  if (quoted == std::string_view::npos) {
    return std::make_exception_ptr(E(renumbered(text, ranks), group_ranks(error.ranks(), ranks)));
  }
  std::string_view told = text.substr(quoted + kWhole.size());
  const std::vector<int> who = take_ranks(told);
  if (told.starts_with(kLost)) return std::make_exception_ptr(PeerLost(std::string(told.substr(kLost.size())), who));
  return std::make_exception_ptr(E(renumbered(text.substr(0, quoted), ranks) + std::string(told), who));
}

}  // namespace

std::vector<int> group_ranks(const std::vector<int>& some, const std::vector<int>& ranks) {
  std::vector<int> numbers;
  for (const int r : some) {
    if (r >= 0 && static_cast<std::size_t>(r) < ranks.size()) numbers.push_back(ranks[static_cast<std::size_t>(r)]);
  }
  return numbers;
}

std::exception_ptr in_whole_group(const std::exception_ptr& error, const std::vector<int>& ranks) {
  try {
    std::rethrow_exception(error);
  } catch (const Timeout& e) {
    return translated(e, ranks);
  } catch (const PeerLost& e) {
    return translated(e, ranks);
  } catch (const Mismatch& e) {
    return translated(e, ranks);
  } catch (const Aborted& e) {
    return translated(e, ranks);
  } catch (...) {
    return std::current_exception();
  }
}

std::string told_to_parts(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const PeerLost& e) {
    return fmt::format("{}[{}{}{}{}", kWhole, fmt::join(e.ranks(), ", "), kEndOfRanks, kLost, describe(error));
  } catch (const Error& e) {
    return fmt::format("{}[{}{}{}", kWhole, fmt::join(e.ranks(), ", "), kEndOfRanks, describe(error));
  } catch (...) {
    return std::string(kWhole) + describe(error);
  }
}

}  // namespace hookline::layered
