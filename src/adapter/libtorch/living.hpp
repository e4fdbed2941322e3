// Registries of live objects that must be released before Python finalizes.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

namespace hookline::libtorch {

/// A thread-safe registry of the live objects of a type. Never destroyed, since objects may outlive static destructors.
template <class T>
class Living {
 public:
  static Living& all() {
    static auto* const living = new Living;
    return *living;
  }

  void add(const std::shared_ptr<T>& object) {
    const std::lock_guard lock(mutex_);
    std::erase_if(objects_, [](const std::weak_ptr<T>& o) { return o.expired(); });
    objects_.push_back(object);
  }
  std::vector<std::shared_ptr<T>> left() {
    std::vector<std::shared_ptr<T>> kept;
    const std::lock_guard lock(mutex_);
    for (const std::weak_ptr<T>& object : objects_) {
      if (auto living = object.lock()) kept.push_back(std::move(living));
    }
    return kept;
  }

 private:
  std::mutex mutex_;
  std::vector<std::weak_ptr<T>> objects_;
};

}  // namespace hookline::libtorch
