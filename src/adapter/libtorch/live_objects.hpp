// Registries of live objects that must be released before Python finalizes.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

namespace hookline::libtorch {

/// A thread-safe registry of the live objects of a type. Never destroyed, since objects may outlive static destructors.
template <class T>
class LiveObjects {
 public:
  static LiveObjects& instance() {
    static auto* const instance = new LiveObjects;
    return *instance;
  }

  void add(const std::shared_ptr<T>& object) {
    const std::lock_guard lock(mutex_);
    std::erase_if(objects_, [](const std::weak_ptr<T>& o) { return o.expired(); });
    objects_.push_back(object);
  }
  std::vector<std::shared_ptr<T>> snapshot() {
    std::vector<std::shared_ptr<T>> alive;
    const std::lock_guard lock(mutex_);
    for (const std::weak_ptr<T>& object : objects_) {
      if (auto object_ptr = object.lock()) alive.push_back(std::move(object_ptr));
    }
    return alive;
  }

 private:
  std::mutex mutex_;
  std::vector<std::weak_ptr<T>> objects_;
};

}  // namespace hookline::libtorch
