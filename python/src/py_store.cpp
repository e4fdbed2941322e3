// Calls of stores written in Python.
#include "py_store.hpp"

#include <type_traits>
#include <utility>

#include <nanobind/stl/chrono.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <hookline/core/error.hpp>

#include "py_call.hpp"
#include "py_error.hpp"

namespace hookline::python {
namespace {

// Converters of results, called with (self, method, result).
constexpr auto kIgnoreResult = [](nb::handle, const char*, nb::handle) {};

constexpr auto kBytesResult = [](nb::handle self, const char* method, nb::handle result) {
  ValueArg value;
  if (!nb::try_cast(result, value, false)) throw_wrong_result(self, method, "bytes or str", result);
  return std::move(value.bytes);
};

constexpr auto kInt64Result = [](nb::handle self, const char* method, nb::handle result) {
  std::int64_t value = 0;
  if (!PyLong_Check(result.ptr()) || !nb::try_cast(result, value, false)) {
    throw_wrong_result(self, method, "an int of 64 bits", result);
  }
  return value;
};

constexpr auto kBoolResult = [](nb::handle self, const char* method, nb::handle result) {
  if (!PyBool_Check(result.ptr())) throw_wrong_result(self, method, "a bool", result);
  return result.ptr() == Py_True;
};

constexpr auto kBytesListResult = [](nb::handle self, const char* method, nb::handle result) {
  if (!PyList_Check(result.ptr()) && !PyTuple_Check(result.ptr())) {
    throw_wrong_result(self, method, "a list of bytes or str", result);
  }
  std::vector<std::string> values;
  for (nb::handle item : nb::borrow<nb::sequence>(result)) values.push_back(kBytesResult(self, method, item));
  return values;
};

constexpr auto kStoreResult = [](nb::handle self, const char* method, nb::handle result) {
  std::shared_ptr<Store> store;
  if (result.is_none() || !nb::try_cast(result, store, false))
    throw_wrong_result(self, method, "a hookline.Store", result);
  return store;
};

// Typed arguments, so that they are converted to Python objects under the GIL.
struct Key {
  const std::string& text;
};
struct Keys {
  const std::vector<std::string>& texts;
};
struct Value {
  const std::string& bytes;
};
struct Values {
  const std::vector<std::string>& bytes;
};

nb::object to_python(Key key) { return key_to_python(key.text); }
nb::object to_python(Keys keys) { return list_to_python(keys.texts, key_to_python); }
nb::object to_python(Value value) { return value_to_python(value.bytes); }
nb::object to_python(Values values) { return list_to_python(values.bytes, value_to_python); }
template <class T>
nb::object to_python(const T& plain) {
  return nb::cast(plain);
}

}  // namespace

nb::str key_to_python(const std::string& key) {
  return nb::steal<nb::str>(PyUnicode_DecodeUTF8(key.data(), static_cast<Py_ssize_t>(key.size()), "surrogateescape"));
}

nb::bytes value_to_python(const std::string& value) { return nb::bytes(value.data(), value.size()); }

template <class Convert, class Base, class... Args>
auto PyStore::call(const char* method, Convert convert, Base base, const Args&... args) const {
  {
    const GilAcquire gil;
    if (!gil) throw Aborted(std::string("Store.") + method + ": Python is finalizing");
    const nb::detail::ticket ticket(nb_trampoline, method, nb::detail::str_hash(method), false);
    if (ticket.key.is_valid()) {
      return with_translated_errors([&] {
        const nb::handle self = nb_trampoline.base();
        return convert(self, method, self.attr(ticket.key)(to_python(args)...));
      });
    }
  }
  return base();
}

template <class Convert, class... Args>
auto PyStore::call_required(const char* method, Convert convert, const Args&... args) const {
  using Result = std::invoke_result_t<Convert, nb::handle, const char*, nb::handle>;
  const auto throw_unsupported = [&]() -> Result {
    throw Unsupported(std::string(method) + " on " + describe() + ": Not implemented. Define " + method +
                      " in the class.");
  };
  return call(method, convert, throw_unsupported, args...);
}

std::string PyStore::describe() const {
  std::string name = "Store";
  with_gil([&] { name = class_name_of(nb_trampoline.base()); });
  return name;
}

void PyStore::set(const std::string& key, const std::string& value) {
  call_required("set", kIgnoreResult, Key{key}, Value{value});
}

std::string PyStore::get(const std::string& key) { return call_required("get", kBytesResult, Key{key}); }

std::int64_t PyStore::add(const std::string& key, std::int64_t amount) {
  return call_required("add", kInt64Result, Key{key}, amount);
}

void PyStore::wait(const std::vector<std::string>& keys, Milliseconds timeout) {
  call_required("wait", kIgnoreResult, Keys{keys}, timeout);
}

bool PyStore::check(const std::vector<std::string>& keys) { return call_required("check", kBoolResult, Keys{keys}); }

std::string PyStore::compare_set(const std::string& key, const std::string& expected, const std::string& desired) {
  return call(
      "compare_set", kBytesResult, [&] { return Store::compare_set(key, expected, desired); }, Key{key},
      Value{expected}, Value{desired});
}

bool PyStore::delete_key(const std::string& key) { return call_required("delete_key", kBoolResult, Key{key}); }

std::int64_t PyStore::num_keys() { return call_required("num_keys", kInt64Result); }

std::vector<std::string> PyStore::list_keys() {
  return call("list_keys", kBytesListResult, [&] { return Store::list_keys(); });
}

void PyStore::append(const std::string& key, const std::string& value) {
  call("append", kIgnoreResult, [&] { Store::append(key, value); }, Key{key}, Value{value});
}

std::vector<std::string> PyStore::multi_get(const std::vector<std::string>& keys) {
  // Does not call the base implementation: it first waits for all keys, but the Python class may not define wait().
  const auto one_by_one = [&] {
    std::vector<std::string> values;
    values.reserve(keys.size());
    for (const std::string& key : keys) values.push_back(get(key));
    return values;
  };
  return call("multi_get", kBytesListResult, one_by_one, Keys{keys});
}

void PyStore::multi_set(const std::vector<std::string>& keys, const std::vector<std::string>& values) {
  call("multi_set", kIgnoreResult, [&] { Store::multi_set(keys, values); }, Keys{keys}, Values{values});
}

void PyStore::queue_push(const std::string& key, const std::string& value) {
  call("queue_push", kIgnoreResult, [&] { Store::queue_push(key, value); }, Key{key}, Value{value});
}

std::string PyStore::queue_pop(const std::string& key, bool block) {
  return call("queue_pop", kBytesResult, [&] { return Store::queue_pop(key, block); }, Key{key}, block);
}

std::int64_t PyStore::queue_len(const std::string& key) {
  return call("queue_len", kInt64Result, [&] { return Store::queue_len(key); }, Key{key});
}

void PyStore::barrier(const std::string& key, std::int64_t world_size, Milliseconds timeout) {
  call("barrier", kIgnoreResult, [&] { Store::barrier(key, world_size, timeout); }, Key{key}, world_size, timeout);
}

bool PyStore::has_extended_api() const {
  return call("has_extended_api", kBoolResult, [] { return false; });
}

std::shared_ptr<Store> PyStore::clone() const { return call_required("clone", kStoreResult); }

}  // namespace hookline::python
