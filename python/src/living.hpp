// The objects of one kind that live in this process, so that the end of Python can see to them.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include <pthread.h>

namespace hookline::python {

/// A forked child begins with an empty list: it has none of its parent's threads, and perhaps nobody who would let go
/// of the lock. The lists are never destroyed, since objects may end after static destructors have run.
template <class T>
class Living {
 public:
  static void add(T* object) {
    List& all = list();
    const std::lock_guard lock(all.mutex);
    all.objects.insert(object);
  }
  static void remove(T* object) {
    List& all = list();
    const std::lock_guard lock(all.mutex);
    all.objects.erase(object);
  }
  /// For what a forked child has of its parent and must never let go of.
  static void keep_for_ever(std::shared_ptr<void> of_the_parent) {
    List& all = list();
    const std::lock_guard lock(all.mutex);
    all.kept.push_back(std::move(of_the_parent));
  }
  /// Calls `f(T&)` for each, under the lock: none of them ends meanwhile.
  template <class F>
  static void for_each(F f) {
    List& all = list();
    const std::lock_guard lock(all.mutex);
    for (T* object : all.objects) f(*object);
  }

 private:
  struct List {
    std::mutex mutex;
    std::set<T*> objects;
    std::vector<std::shared_ptr<void>> kept;
  };

  static List& list() {
    static std::once_flag once;
    std::call_once(once, [] {
      renew();
      pthread_atfork(nullptr, nullptr, &renew);
    });
    return *current.load();
  }
  static void renew() { current = new List; }

  static inline std::atomic<List*> current = nullptr;
};

}  // namespace hookline::python
