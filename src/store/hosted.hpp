// Stores of other libraries that know which host keeps them.
#pragma once

#include <string>

#include <hookline/core/export.hpp>

namespace hookline::store {

/// A store may be this beside being a Store.
class HOOKLINE_EXPORT Hosted {
 public:
  Hosted() = default;
  Hosted(const Hosted&) = delete;
  Hosted& operator=(const Hosted&) = delete;
  virtual ~Hosted() = default;

  /// A name or number of the host that keeps it; empty where no host does.
  virtual std::string keeper() const = 0;
};

}  // namespace hookline::store
