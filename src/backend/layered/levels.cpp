// Errors of the parts, as errors of the whole.
#include "backend/layered/levels.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <hookline/core/error.hpp>

namespace hookline::layered {
namespace {

template <class E>
std::exception_ptr explained(const E& error, const std::string& note) {
  return std::make_exception_ptr(E(error.what() + note));
}

}  // namespace

std::exception_ptr in_whole_group(const std::exception_ptr& error, const Backend& part, const std::vector<int>& ranks) {
  const std::string note = fmt::format(
      " (in the {} part of a layered group, whose ranks 0 to {} are the ranks {} of the whole; this is rank {})",
      part.name(), ranks.size() - 1, fmt::join(ranks, ", "), ranks[static_cast<std::size_t>(part.rank())]);
  try {
    std::rethrow_exception(error);
  } catch (const Timeout& e) {
    return explained(e, note);
  } catch (const PeerLost& e) {
    return explained(e, note);
  } catch (const Mismatch& e) {
    return explained(e, note);
  } catch (const Aborted& e) {
    const std::string text = e.what();
    const std::size_t lost = text.find(Levels::kLost);
    if (lost == std::string::npos) return explained(e, note);
    return std::make_exception_ptr(PeerLost(text.substr(lost)));
  } catch (...) {
    return std::current_exception();
  }
}

std::string told_to_parts(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const PeerLost& e) {
    const std::string text = e.what();
    return text.starts_with(Levels::kLost) ? text : Levels::kLost + text;
  } catch (...) {
    return describe(error);
  }
}

}  // namespace hookline::layered
