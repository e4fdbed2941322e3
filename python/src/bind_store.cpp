// Binds the stores and rendezvous(), with the names and arguments of torch.distributed.
#include <optional>

#include <nanobind/stl/chrono.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <hookline/store/file_store.hpp>
#include <hookline/store/memory_store.hpp>
#include <hookline/store/prefix_store.hpp>
#include <hookline/store/rendezvous.hpp>
#include <hookline/store/tcp_store.hpp>

#include "bindings.hpp"
#include "py_store.hpp"
#include "timeout_arg.hpp"
#include "without_gil.hpp"

namespace hookline::python {
namespace {

using Keys = std::vector<std::string>;
using Values = std::vector<ValueArg>;

constexpr const char* kUseLibuv = "_use_libuv";

/// Returns the timeout, or the store's default.
Milliseconds timeout_or_default(const std::optional<TimeoutArg>& timeout, const Store& store) {
  return timeout ? *timeout : store.timeout();
}

// A PrefixStore may be part of a cycle: it refers to a Python store, whose class refers to the module in which the
// PrefixStore is a variable. The garbage collector must see this reference, unless C++ code shares the inner store.
int traverse_prefix_store(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (!nb::inst_ready(self)) return 0;
  const std::shared_ptr<Store>& inner = nb::inst_ptr<PrefixStore>(self)->underlying_store();
  if (inner.use_count() == 1) {
    const nb::object found = nb::find(inner.get());
    Py_VISIT(found.ptr());
  }
  return 0;
}

// Only called for an object that no native code owns. Later calls of its methods raise a TypeError.
int clear_prefix_store(PyObject* self) {
  if (nb::inst_ready(self)) nb::inst_destruct(self);
  return 0;
}

PyType_Slot prefix_store_slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(traverse_prefix_store)},
                                    {Py_tp_clear, reinterpret_cast<void*>(clear_prefix_store)},
                                    {0, nullptr}};

void bind_operations(nb::class_<Store, PyStore>& store) {
  using nb::arg;
  const nb::call_guard<InterruptibleGilRelease> native;
  store
      .def(
          "set",
          [](Store& s, const std::string& key, const ValueArg& value) {
            without_gil([&] { s.set(key, value.bytes); });
          },
          arg("key"), arg("value"), "Sets the value of a key, bytes or str, replacing any old value.")
      .def(
          "get",
          [](Store& s, const std::string& key) { return value_to_python(without_gil([&] { return s.get(key); })); },
          arg("key"), "Returns the value of a key. Waits up to the store's timeout for it to be set.")
      .def("add", &Store::add, arg("key"), arg("amount"), native,
           "Adds to a counter, which starts at 0, and returns its new value.")
      .def(
          "wait",
          [](Store& s, const Keys& keys, std::optional<TimeoutArg> timeout) {
            const Milliseconds limit = timeout_or_default(timeout, s);
            without_gil([&] { s.wait(keys, limit); });
          },
          arg("keys"), arg("timeout") = nb::none(), "Waits until all keys are set.")
      .def("check", &Store::check, arg("keys"), native, "True if all keys are set.")
      .def(
          "compare_set",
          [](Store& s, const std::string& key, const ValueArg& expected, const ValueArg& desired) {
            return value_to_python(without_gil([&] { return s.compare_set(key, expected.bytes, desired.bytes); }));
          },
          arg("key"), arg("expected_value"), arg("desired_value"),
          "Sets desired_value if the key has expected_value, or if the key is missing and expected_value is empty. "
          "Returns the resulting value of the key; expected_value if the key is missing and expected_value is not "
          "empty.")
      .def("delete_key", &Store::delete_key, arg("key"), native, "Deletes a key and returns True if it existed.")
      .def("num_keys", &Store::num_keys, native, "Returns the number of keys.")
      .def(
          "list_keys",
          [](Store& s) { return list_to_python(without_gil([&] { return s.list_keys(); }), key_to_python); },
          nb::sig("def list_keys(self) -> list[str]"), "Returns all keys in arbitrary order.")
      .def(
          "append",
          [](Store& s, const std::string& key, const ValueArg& value) {
            without_gil([&] { s.append(key, value.bytes); });
          },
          arg("key"), arg("value"), "Appends to the value of a key; a missing key counts as empty.")
      .def(
          "multi_get",
          [](Store& s, const Keys& keys) {
            return list_to_python(without_gil([&] { return s.multi_get(keys); }), value_to_python);
          },
          arg("keys"), nb::sig("def multi_get(self, keys: collections.abc.Sequence[str]) -> list[bytes]"),
          "Returns the values of several keys. Waits for them as get does.")
      .def(
          "multi_set",
          [](Store& s, const Keys& keys, const Values& values) {
            Keys bytes;
            for (const ValueArg& value : values) bytes.push_back(value.bytes);
            without_gil([&] { s.multi_set(keys, bytes); });
          },
          arg("keys"), arg("values"), "Sets several keys. Not atomic: other clients may see only some of the values.")
      .def(
          "queue_push",
          [](Store& s, const std::string& key, const ValueArg& value) {
            without_gil([&] { s.queue_push(key, value.bytes); });
          },
          arg("key"), arg("value"), "Appends an element to a queue.")
      .def(
          "queue_pop",
          [](Store& s, const std::string& key, bool block) {
            return value_to_python(without_gil([&] { return s.queue_pop(key, block); }));
          },
          arg("key"), arg("block") = true,
          "Removes and returns the oldest element of a queue. Waits for one; with block=False, raises InvalidArgument "
          "if "
          "the queue is empty.")
      .def("queue_len", &Store::queue_len, arg("key"), native, "Returns the length of a queue.")
      .def(
          "barrier",
          [](Store& s, const std::string& key, std::int64_t world_size, std::optional<TimeoutArg> timeout) {
            const Milliseconds limit = timeout_or_default(timeout, s);
            without_gil([&] { s.barrier(key, world_size, limit); });
          },
          arg("key"), arg("world_size"), arg("timeout") = nb::none(),
          "Blocks until world_size callers have reached the barrier with this key.")
      .def("has_extended_api", &Store::has_extended_api,
           "True if the store implements append, multi_get and multi_set natively.")
      .def("clone", &Store::clone, native,
           "Returns another store object for the same values, for use by another thread. It has its own timeout and, "
           "for "
           "a TCPStore, its own connection.");
}

}  // namespace

void bind_store(nb::module_& m) {
  using nb::arg;
  const auto seconds = [](Milliseconds time) { return std::chrono::duration<double>(time).count(); };
  const double default_timeout = seconds(Store::kDefaultStoreTimeout);
  const TCPStoreLimits limits;

  nb::class_<Store, PyStore> store(
      m, "Store", nb::is_weak_referenceable(),
      "A key-value store that processes share. Native code calls the overrides of derived classes.");
  store.def(nb::init<>());
  bind_operations(store);
  store.def_prop_ro(
           "timeout", [](const Store& s) { return s.timeout(); }, "The default timeout of waits.")
      .def(
          "set_timeout", [](Store& s, TimeoutArg timeout) { s.set_timeout(timeout); }, arg("timeout"),
          "Sets the default timeout of get() and wait().")
      .def("__repr__", [](const Store& s) { return "<hookline." + s.describe() + ">"; });

  nb::class_<MemoryStore, Store>(m, "MemoryStore", "A store in the memory of this process.")
      .def(
          "__init__", [](MemoryStore* self, TimeoutArg timeout) { new (self) MemoryStore(timeout); },
          arg("timeout") = default_timeout);

  nb::class_<FileStore, Store>(m, "FileStore", "A store in a file, for the processes of one host.")
      .def(
          "__init__",
          [](FileStore* self, const std::string& file_name, int world_size, TimeoutArg timeout) {
            without_gil([&] { new (self) FileStore(file_name, world_size, timeout); });
          },
          arg("file_name"), arg("world_size") = -1, arg("timeout") = default_timeout)
      .def_prop_ro("path", &FileStore::path);

  nb::class_<PrefixStore, Store>(m, "PrefixStore", nb::type_slots(prefix_store_slots),
                                 "A view of another store that adds a prefix to all keys.")
      .def(nb::init<std::string, std::shared_ptr<Store>>(), arg("prefix"), arg("store").none())
      .def_prop_ro("prefix", &PrefixStore::prefix)
      .def_prop_ro("underlying_store", &PrefixStore::underlying_store)
      .def_prop_ro(
          "_underlying_non_prefix_store",
          [](const PrefixStore& prefix_store) {
            std::shared_ptr<Store> inner = prefix_store.underlying_store();
            while (const auto* next = dynamic_cast<const PrefixStore*>(inner.get())) inner = next->underlying_store();
            return inner;
          },
          "The innermost store, without prefixes.");

  nb::class_<TCPStore, Store>(m, "TCPStore", nb::dynamic_attr(), "A store that one process serves over TCP.")
      .def(
          "__init__",
          [](TCPStore* self, const std::string& host_name, int port, std::optional<int> world_size, bool is_master,
             TimeoutArg timeout, bool wait_for_workers, bool multi_tenant, std::optional<int> master_listen_fd,
             bool use_libuv, bool listen_on_all_interfaces, std::optional<std::string> token,
             bool allow_unauthenticated, std::size_t max_connections, std::size_t max_pending_connections,
             TimeoutArg handshake_timeout, std::size_t max_keys, std::size_t max_bytes, std::size_t max_value_bytes,
             TimeoutArg keepalive) {
            if (port < 0 || port > 65535) {
              throw InvalidArgument("TCPStore: port must have value from 0 to 65535 but was " + std::to_string(port));
            }
            if (world_size == -1) world_size.reset();  // not fixed, as in PyTorch
            TCPStoreOptions options{host_name,       static_cast<std::uint16_t>(port), world_size, is_master, timeout,
                                    wait_for_workers};
            options.listen_on_all_interfaces = listen_on_all_interfaces;
            options.token = std::move(token);
            options.allow_unauthenticated = allow_unauthenticated;
            options.multi_tenant = multi_tenant;
            options.master_listen_fd = master_listen_fd;
            options.limits = {max_connections, max_pending_connections, handshake_timeout, max_keys,
                              max_bytes,       max_value_bytes,         keepalive};
            without_gil([&] { new (self) TCPStore(options); });
            nb::setattr(nb::find(self), kUseLibuv, nb::bool_(use_libuv));
          },
          arg("host_name"), arg("port"), arg("world_size") = nb::none(), arg("is_master") = false,
          arg("timeout") = default_timeout, arg("wait_for_workers") = true, arg("multi_tenant") = false,
          arg("master_listen_fd") = nb::none(), arg("use_libuv") = true, nb::kw_only(),
          arg("listen_on_all_interfaces") = false, arg("token") = nb::none(), arg("allow_unauthenticated") = false,
          arg("max_connections") = limits.max_connections,
          arg("max_pending_connections") = limits.max_pending_connections,
          arg("handshake_timeout") = seconds(limits.handshake_timeout), arg("max_keys") = limits.max_keys,
          arg("max_bytes") = limits.max_bytes, arg("max_value_bytes") = limits.max_value_bytes,
          arg("keepalive") = seconds(limits.keepalive),
          "Takes the arguments of torch.distributed.TCPStore in the same order, and more. With `multi_tenant`, stores "
          "of "
          "one process share a server on one port. The server of the master takes ownership of `master_listen_fd`, a "
          "bound socket. `use_libuv` has no effect: there is one server implementation. With `token`, or "
          "HOOKLINE_TOKEN "
          "in the environment, client and server authenticate each other before the first request; an empty token "
          "selects PyTorch's unauthenticated protocol. A server reachable from other hosts requires a token, unless "
          "`allow_unauthenticated` (HOOKLINE_ALLOW_UNAUTHENTICATED=1) permits all clients.\n\n"
          "The `max_` options limit the resources of all clients of the server together; a client that exceeds a limit "
          "is refused or disconnected. 0 for `max_connections` means a share of the file descriptor limit. `keepalive` "
          "is the idle time in seconds, on both sides, after which TCP probes the other host.")
      .def_prop_ro("host", &TCPStore::host)
      .def_prop_ro("port", &TCPStore::port)
      .def_prop_ro(
          "libuvBackend", [](nb::handle self) { return nb::cast<bool>(nb::getattr(self, kUseLibuv, nb::bool_(true))); },
          "The `use_libuv` argument of the constructor.")
      .def("ping", &TCPStore::ping, nb::call_guard<InterruptibleGilRelease>(),
           "Sends a request and waits for the server's reply.");

  nb::class_<Rendezvous>(m, "Rendezvous", "The result of rendezvous(): the store and the ranks of this process.")
      .def_ro("store", &Rendezvous::store)
      .def_ro("rank", &Rendezvous::rank)
      .def_ro("world_size", &Rendezvous::world_size)
      .def_ro("local_rank", &Rendezvous::local_rank);
  m.def(
      "rendezvous",
      [](const std::string& init_method, std::optional<int> rank, std::optional<int> world_size, TimeoutArg timeout) {
        return without_gil([&] { return rendezvous(init_method, rank, world_size, timeout); });
      },
      arg("init_method") = "env://", arg("rank") = nb::none(), arg("world_size") = nb::none(),
      arg("timeout") = default_timeout,
      "Determines the store, the rank and the world size of this process, as torch.distributed does: env://, file:// "
      "or "
      "tcp://.");
}

}  // namespace hookline::python
