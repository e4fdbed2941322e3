// Translates errors of the sub-backends into errors of the group.
#include "backend/hierarchical/sub_backends.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <hookline/core/error.hpp>

namespace hookline::hierarchical {
namespace {

// Markers in the text of an abort. After kQuotePrefix, rank numbers are already group ranks and need no translation;
// kPeerLostPrefix means that the original error is a PeerLost.
constexpr std::string_view kQuotePrefix = "in the hierarchical group: ";
constexpr std::string_view kPeerLostPrefix = "a peer was lost: ";
constexpr std::string_view kRanksEnd = "] ";

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

// Replaces each rank number of the sub-backend, after "rank" or "ranks", with the group rank.
std::string map_ranks_in_text(std::string_view text, const std::vector<int>& ranks) {
  std::string out;
  std::size_t position = 0;
  const auto append_mapped_rank = [&] {
    std::size_t number = 0;
    const std::size_t begin = position;
    for (; position < text.size() && is_digit(text[position]) && position - begin < 6; ++position) {
      number = number * 10 + static_cast<std::size_t>(text[position] - '0');
    }
    out += number < ranks.size() ? std::to_string(ranks[number]) : std::string(text.substr(begin, position - begin));
  };
  while (position < text.size()) {
    const bool after_rank_word =
        text.substr(position).starts_with("ank ") || text.substr(position).starts_with("anks ");
    out += text[position++];
    if (!after_rank_word) continue;
    while (position < text.size() && text[position - 1] != ' ') out += text[position++];
    while (position < text.size() && is_digit(text[position])) {
      append_mapped_rank();
      if (!text.substr(position).starts_with(", ") || position + 2 >= text.size() || !is_digit(text[position + 2]))
        break;
      out += ", ";
      position += 2;
    }
  }
  return out;
}

// Removes a list "[1, 2] " from the beginning of `text` and returns its ranks.
std::vector<int> parse_ranks(std::string_view& text) {
  std::vector<int> ranks;
  const std::size_t end = text.find(kRanksEnd);
  if (!text.starts_with('[') || end == std::string_view::npos) return ranks;
  const char* position = text.data() + 1;
  const char* const last = text.data() + end;
  for (int rank = 0; position < last;) {
    const auto [next, error] = std::from_chars(position, last, rank);
    if (error != std::errc()) break;
    ranks.push_back(rank);
    position = std::min(next + 2, last);
  }
  text.remove_prefix(end + kRanksEnd.size());
  return ranks;
}

template <class E>
std::exception_ptr translate(const E& error, const std::vector<int>& ranks) {
  const std::string_view text = error.what();
  const std::size_t quote_begin = text.find(kQuotePrefix);
  if (quote_begin == std::string_view::npos) {
    return std::make_exception_ptr(E(map_ranks_in_text(text, ranks), map_ranks(error.ranks(), ranks)));
  }
  std::string_view quote = text.substr(quote_begin + kQuotePrefix.size());
  const std::vector<int> cause_ranks = parse_ranks(quote);
  if (quote.starts_with(kPeerLostPrefix))
    return std::make_exception_ptr(PeerLost(std::string(quote.substr(kPeerLostPrefix.size())), cause_ranks));
  return std::make_exception_ptr(
      E(map_ranks_in_text(text.substr(0, quote_begin), ranks) + std::string(quote), cause_ranks));
}

}  // namespace

std::vector<int> map_ranks(const std::vector<int>& sub_ranks, const std::vector<int>& ranks) {
  std::vector<int> mapped;
  for (const int r : sub_ranks) {
    if (r >= 0 && static_cast<std::size_t>(r) < ranks.size()) mapped.push_back(ranks[static_cast<std::size_t>(r)]);
  }
  return mapped;
}

std::exception_ptr translate_error(const std::exception_ptr& error, const std::vector<int>& ranks) {
  try {
    std::rethrow_exception(error);
  } catch (const Timeout& e) {
    return translate(e, ranks);
  } catch (const PeerLost& e) {
    return translate(e, ranks);
  } catch (const Mismatch& e) {
    return translate(e, ranks);
  } catch (const Aborted& e) {
    return translate(e, ranks);
  } catch (...) {
    return std::current_exception();
  }
}

std::string abort_message(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const PeerLost& e) {
    return fmt::format("{}[{}{}{}{}", kQuotePrefix, fmt::join(e.ranks(), ", "), kRanksEnd, kPeerLostPrefix,
                       describe(error));
  } catch (const Error& e) {
    return fmt::format("{}[{}{}{}", kQuotePrefix, fmt::join(e.ranks(), ", "), kRanksEnd, describe(error));
  } catch (...) {
    return std::string(kQuotePrefix) + describe(error);
  }
}

}  // namespace hookline::hierarchical
