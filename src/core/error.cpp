// Error types. Out-of-line destructors keep their type information in the library.
#include <hookline/core/error.hpp>

#include <algorithm>
#include <utility>

namespace hookline {

Error::Error(const std::string& message, std::exception_ptr cause)
    : std::runtime_error(message), cause_(std::move(cause)) {}

Error::Error(const std::string& message, std::vector<int> ranks, std::exception_ptr cause)
    : Error(message, std::move(cause)) {
  std::sort(ranks.begin(), ranks.end());
  if (!ranks.empty()) ranks_ = std::make_shared<const std::vector<int>>(std::move(ranks));
}

const std::vector<int>& Error::ranks() const noexcept {
  static const std::vector<int> kUnknown;
  return ranks_ ? *ranks_ : kUnknown;
}

Error::~Error() = default;
InvalidArgument::~InvalidArgument() = default;
Unsupported::~Unsupported() = default;
Timeout::~Timeout() = default;
PeerLost::~PeerLost() = default;
Mismatch::~Mismatch() = default;
Aborted::~Aborted() = default;
ResourceError::~ResourceError() = default;

std::string describe(const std::exception_ptr& error) {
  std::string text;
  std::exception_ptr next = error;
  while (next) {
    if (!text.empty()) text += "\n  caused by: ";
    try {
      std::rethrow_exception(std::exchange(next, nullptr));
    } catch (const Error& e) {
      text += e.what();
      next = e.cause();
    } catch (const std::exception& e) {
      text += e.what();
    } catch (...) {
      text += "an exception of an unknown type";
    }
  }
  return text;
}

}  // namespace hookline
