// Calls from C++ into stores written in Python.
#include "py_store.hpp"

#include <type_traits>
#include <utility>

#include <nanobind/stl/chrono.h>
#include <nanobind/stl/string.h>

#include <hookline/core/error.hpp>

#include "py_call.hpp"
#include "py_error.hpp"

namespace hookline::python {
namespace {

// How each kind of result is read; all get (self, method, result).
constexpr auto kNothing = [](nb::handle, const char*, nb::handle) {};

constexpr auto kText = [](nb::handle self, const char* method, nb::handle result) {
  ValueArg value;
  if (!nb::try_cast(result, value, false)) wrong_result(self, method, "bytes or str", result);
  return std::move(value.bytes);
};

constexpr auto kNumber = [](nb::handle self, const char* method, nb::handle result) {
  std::int64_t value = 0;
  if (!PyLong_Check(result.ptr()) || !nb::try_cast(result, value, false)) {
    wrong_result(self, method, "an int of 64 bits", result);
  }
  return value;
};

constexpr auto kBool = [](nb::handle self, const char* method, nb::handle result) {
  if (!PyBool_Check(result.ptr())) wrong_result(self, method, "a bool", result);
  return result.ptr() == Py_True;
};

constexpr auto kTexts = [](nb::handle self, const char* method, nb::handle result) {
  if (!PyList_Check(result.ptr()) && !PyTuple_Check(result.ptr())) {
    wrong_result(self, method, "a list of bytes or str", result);
  }
  std::vector<std::string> values;
  for (nb::handle item : nb::borrow<nb::sequence>(result)) values.push_back(kText(self, method, item));
  return values;
};

}  // namespace

nb::str key_to_python(const std::string& key) {
  return nb::steal<nb::str>(PyUnicode_DecodeUTF8(key.data(), static_cast<Py_ssize_t>(key.size()), "surrogateescape"));
}

nb::bytes value_to_python(const std::string& value) { return nb::bytes(value.data(), value.size()); }

template <class Convert, class Base, class... Args>
auto PyStore::call(const char* method, Convert convert, Base base, Args&&... args) const {
  {
    const GilStay stay;
    if (!stay) throw Aborted(std::string("Store.") + method + ": Python is ending, and this store is a Python class");
    const nb::detail::ticket ticket(nb_trampoline, method, nb::detail::str_hash(method), false);
    if (ticket.key.is_valid()) {
      return translating_errors([&] {
        const nb::handle self = nb_trampoline.base();
        return convert(self, method, self.attr(ticket.key)(args()...));
      });
    }
  }
  return base();
}

void PyStore::lacks(const char* method) const {
  throw Unsupported(describe() + " has no " + method + "; define " + method + " in the class");
}

std::string PyStore::describe() const {
  std::string name = "Store";
  with_gil([&] { name = class_of(nb_trampoline.base()); });
  return name;
}

void PyStore::set(const std::string& key, const std::string& value) {
  call(
      "set", kNothing, [&] { lacks("set"); }, [&] { return key_to_python(key); },
      [&] { return value_to_python(value); });
}

std::string PyStore::get(const std::string& key) {
  return call("get", kText, [&]() -> std::string { lacks("get"); }, [&] { return key_to_python(key); });
}

std::int64_t PyStore::add(const std::string& key, std::int64_t amount) {
  return call(
      "add", kNumber, [&]() -> std::int64_t { lacks("add"); }, [&] { return key_to_python(key); },
      [&] { return amount; });
}

void PyStore::wait(const std::vector<std::string>& keys, Milliseconds timeout) {
  call(
      "wait", kNothing, [&] { lacks("wait"); }, [&] { return list_to_python(keys, key_to_python); },
      [&] { return nb::cast(timeout); });
}

bool PyStore::check(const std::vector<std::string>& keys) {
  return call("check", kBool, [&]() -> bool { lacks("check"); }, [&] { return list_to_python(keys, key_to_python); });
}

std::string PyStore::compare_set(const std::string& key, const std::string& expected, const std::string& desired) {
  return call(
      "compare_set", kText, [&] { return Store::compare_set(key, expected, desired); },
      [&] { return key_to_python(key); }, [&] { return value_to_python(expected); },
      [&] { return value_to_python(desired); });
}

bool PyStore::delete_key(const std::string& key) {
  return call("delete_key", kBool, [&]() -> bool { lacks("delete_key"); }, [&] { return key_to_python(key); });
}

std::int64_t PyStore::num_keys() {
  return call("num_keys", kNumber, [&]() -> std::int64_t { lacks("num_keys"); });
}

std::vector<std::string> PyStore::list_keys() {
  return call("list_keys", kTexts, [&] { return Store::list_keys(); });
}

void PyStore::append(const std::string& key, const std::string& value) {
  call(
      "append", kNothing, [&] { Store::append(key, value); }, [&] { return key_to_python(key); },
      [&] { return value_to_python(value); });
}

std::vector<std::string> PyStore::multi_get(const std::vector<std::string>& keys) {
  return call(
      "multi_get", kTexts, [&] { return Store::multi_get(keys); }, [&] { return list_to_python(keys, key_to_python); });
}

void PyStore::multi_set(const std::vector<std::string>& keys, const std::vector<std::string>& values) {
  call(
      "multi_set", kNothing, [&] { Store::multi_set(keys, values); },
      [&] { return list_to_python(keys, key_to_python); }, [&] { return list_to_python(values, value_to_python); });
}

void PyStore::queue_push(const std::string& key, const std::string& value) {
  call(
      "queue_push", kNothing, [&] { Store::queue_push(key, value); }, [&] { return key_to_python(key); },
      [&] { return value_to_python(value); });
}

std::string PyStore::queue_pop(const std::string& key, bool block) {
  return call(
      "queue_pop", kText, [&] { return Store::queue_pop(key, block); }, [&] { return key_to_python(key); },
      [&] { return block; });
}

std::int64_t PyStore::queue_len(const std::string& key) {
  return call("queue_len", kNumber, [&] { return Store::queue_len(key); }, [&] { return key_to_python(key); });
}

void PyStore::barrier(const std::string& key, std::int64_t world_size, Milliseconds timeout) {
  call(
      "barrier", kNothing, [&] { Store::barrier(key, world_size, timeout); }, [&] { return key_to_python(key); },
      [&] { return world_size; }, [&] { return nb::cast(timeout); });
}

}  // namespace hookline::python
