// A registry of the live objects of a type in this process, for cleanup at Python's exit.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include <pthread.h>

namespace hookline::python {

/// A forked child starts with an empty registry: it has none of its parent's threads, and the lock may be held by one
/// of them. Registries are never destroyed, since objects may be destroyed after static destructors have run.
template <class T>
class LiveObjects {
 public:
  static void add(T* object) {
    List& live = list();
    const std::lock_guard lock(live.mutex);
    live.objects.insert(object);
  }
  static void remove(T* object) {
    List& live = list();
    const std::lock_guard lock(live.mutex);
    live.objects.erase(object);
  }
  /// Leaks an object that a forked child inherited and must never destroy.
  static void leak(std::shared_ptr<void> inherited) {
    List& live = list();
    const std::lock_guard lock(live.mutex);
    live.leaked.push_back(std::move(inherited));
  }
  /// Calls `f(T&)` for each object under the lock, so that none is destroyed meanwhile.
  template <class F>
  static void for_each(F f) {
    List& live = list();
    const std::lock_guard lock(live.mutex);
    for (T* object : live.objects) f(*object);
  }

 private:
  struct List {
    std::mutex mutex;
    std::set<T*> objects;
    std::vector<std::shared_ptr<void>> leaked;
  };

  static List& list() {
    static std::once_flag once;
    std::call_once(once, [] {
      reset();
      pthread_atfork(nullptr, nullptr, &reset);
    });
    return *current.load();
  }
  static void reset() { current = new List; }

  static inline std::atomic<List*> current = nullptr;
};

}  // namespace hookline::python
