// Binds the stores and the rendezvous, with the names and arguments of torch.distributed.
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

#include "natively.hpp"
#include "py_store.hpp"
#include "rooms.hpp"
#include "timeout_arg.hpp"

namespace hookline::python {
namespace {

using Keys = std::vector<std::string>;
using Values = std::vector<ValueArg>;

constexpr const char* kUseLibuv = "_use_libuv";

/// The store's own timeout where none is given.
Milliseconds timeout_or_default(const std::optional<TimeoutArg>& timeout, const Store& store) {
  return timeout ? *timeout : store.timeout();
}

// A prefix store may be part of a cycle: it holds a Python store, whose class knows the module in which the prefix
// store is a variable. Python's collector has to see that reference; it is ours to show while nobody shares it.
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

// Only an object that no native code holds is ever cleared; what still calls it afterwards gets a TypeError.
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
            releases_gil([&] { s.set(key, value.bytes); });
          },
          arg("key"), arg("value"), "Puts a value, bytes or text, under a key, in the place of one that is there.")
      .def(
          "get",
          [](Store& s, const std::string& key) { return value_to_python(releases_gil([&] { return s.get(key); })); },
          arg("key"), "The value of a key, waiting up to the store's timeout for it to be set.")
      .def("add", &Store::add, arg("key"), arg("amount"), native,
           "Adds to a counter, which starts at 0, and returns the sum.")
      .def(
          "wait",
          [](Store& s, const Keys& keys, std::optional<TimeoutArg> timeout) {
            const Milliseconds limit = timeout_or_default(timeout, s);
            releases_gil([&] { s.wait(keys, limit); });
          },
          arg("keys"), arg("timeout") = nb::none(), "Waits until all keys are set.")
      .def("check", &Store::check, arg("keys"), native, "Whether all keys are set now.")
      .def(
          "compare_set",
          [](Store& s, const std::string& key, const ValueArg& expected, const ValueArg& desired) {
            return value_to_python(releases_gil([&] { return s.compare_set(key, expected.bytes, desired.bytes); }));
          },
          arg("key"), arg("expected_value"), arg("desired_value"),
          "Sets the desired value where the key has the expected one, or is missing and the expected one is empty. "
          "Returns the value afterwards; for a missing key and another expected value, that one.")
      .def("delete_key", &Store::delete_key, arg("key"), native, "Whether there was such a key.")
      .def("num_keys", &Store::num_keys, native, "How many keys have a value.")
      .def(
          "list_keys",
          [](Store& s) { return list_to_python(releases_gil([&] { return s.list_keys(); }), key_to_python); },
          nb::sig("def list_keys(self) -> list[str]"), "The keys that have a value, in no particular order.")
      .def(
          "append",
          [](Store& s, const std::string& key, const ValueArg& value) {
            releases_gil([&] { s.append(key, value.bytes); });
          },
          arg("key"), arg("value"), "Appends to the value of a key; a missing one starts empty.")
      .def(
          "multi_get",
          [](Store& s, const Keys& keys) {
            return list_to_python(releases_gil([&] { return s.multi_get(keys); }), value_to_python);
          },
          arg("keys"), nb::sig("def multi_get(self, keys: collections.abc.Sequence[str]) -> list[bytes]"),
          "The values in the order of the keys, waiting for them as get does.")
      .def(
          "multi_set",
          [](Store& s, const Keys& keys, const Values& values) {
            Keys bytes;
            for (const ValueArg& value : values) bytes.push_back(value.bytes);
            releases_gil([&] { s.multi_set(keys, bytes); });
          },
          arg("keys"), arg("values"), "Sets each key to the value in its place; others may see some of them first.")
      .def(
          "queue_push",
          [](Store& s, const std::string& key, const ValueArg& value) {
            releases_gil([&] { s.queue_push(key, value.bytes); });
          },
          arg("key"), arg("value"), "Puts an element at the end of the queue of a key.")
      .def(
          "queue_pop",
          [](Store& s, const std::string& key, bool block) {
            return value_to_python(releases_gil([&] { return s.queue_pop(key, block); }));
          },
          arg("key"), arg("block") = true,
          "The oldest element, waiting for one; with block=False, InvalidArgument where there is none.")
      .def("queue_len", &Store::queue_len, arg("key"), native, "How many elements the queue of a key has.")
      .def(
          "barrier",
          [](Store& s, const std::string& key, std::int64_t world_size, std::optional<TimeoutArg> timeout) {
            const Milliseconds limit = timeout_or_default(timeout, s);
            releases_gil([&] { s.barrier(key, world_size, limit); });
          },
          arg("key"), arg("world_size"), arg("timeout") = nb::none(),
          "Returns when world_size callers have come to the barrier of this name.")
      .def("has_extended_api", &Store::has_extended_api,
           "True if append, multi_get and multi_set are implemented by the store itself.")
      .def("clone", &Store::clone, native,
           "Returns another store object on the same values, with its own timeout and, for a TCPStore, its own "
           "connection: for another thread.");
}

}  // namespace

void bind_store(nb::module_& m) {
  using nb::arg;
  const auto seconds = [](Milliseconds time) { return std::chrono::duration<double>(time).count(); };
  const double default_timeout = seconds(Store::kDefaultStoreTimeout);
  const TCPStoreLimits limits;

  nb::class_<Store, PyStore> store(
      m, "Store", nb::is_weak_referenceable(),
      "A small key-value table that processes share. A class may derive from it; native code "
      "then calls its methods.");
  store.def(nb::init<>());
  bind_operations(store);
  store
      .def_prop_ro(
          "timeout", [](const Store& s) { return s.timeout(); }, "How long waits last that are given no time.")
      .def(
          "set_timeout", [](Store& s, TimeoutArg timeout) { s.set_timeout(timeout); }, arg("timeout"),
          "How long get, and wait without a time of its own, will wait.")
      .def("__repr__", [](const Store& s) { return "<hookline." + s.describe() + ">"; });

  nb::class_<MemoryStore, Store>(m, "MemoryStore", "A store in the memory of this process.")
      .def(
          "__init__", [](MemoryStore* self, TimeoutArg timeout) { new (self) MemoryStore(timeout); },
          arg("timeout") = default_timeout);

  nb::class_<FileStore, Store>(m, "FileStore", "A store in a file that the processes of one host share.")
      .def(
          "__init__",
          [](FileStore* self, const std::string& file_name, int world_size, TimeoutArg timeout) {
            releases_gil([&] { new (self) FileStore(file_name, world_size, timeout); });
          },
          arg("file_name"), arg("world_size") = -1, arg("timeout") = default_timeout)
      .def_prop_ro("path", &FileStore::path);

  nb::class_<PrefixStore, Store>(m, "PrefixStore", nb::type_slots(prefix_store_slots),
                                 "A store whose keys are those of another one under a prefix.")
      .def(nb::init<std::string, std::shared_ptr<Store>>(), arg("prefix"), arg("store").none())
      .def_prop_ro("prefix", &PrefixStore::prefix)
      .def_prop_ro("underlying_store", &PrefixStore::underlying_store)
      .def_prop_ro(
          "_underlying_non_prefix_store",
          [](const PrefixStore& prefix) {
            std::shared_ptr<Store> inner = prefix.underlying_store();
            while (const auto* next = dynamic_cast<const PrefixStore*>(inner.get())) inner = next->underlying_store();
            return inner;
          },
          "The store inside of all prefixes.");

  nb::class_<TCPStore, Store>(m, "TCPStore", nb::dynamic_attr(),
                              "A store that one process keeps and others reach over TCP.")
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
            if (world_size == -1) world_size.reset();  // as PyTorch's: not fixed
            TCPStoreOptions options{host_name,       static_cast<std::uint16_t>(port), world_size, is_master, timeout,
                                    wait_for_workers};
            options.listen_on_all_interfaces = listen_on_all_interfaces;
            options.token = std::move(token);
            options.allow_unauthenticated = allow_unauthenticated;
            options.multi_tenant = multi_tenant;
            options.master_listen_fd = master_listen_fd;
            options.limits = {max_connections, max_pending_connections, handshake_timeout, max_keys,
                              max_bytes,       max_value_bytes,         keepalive};
            releases_gil([&] { new (self) TCPStore(options); });
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
          "The arguments of torch.distributed.TCPStore, in its order, and more. Tenants (`multi_tenant`) of one "
          "process share a server on one port. The master's server owns `master_listen_fd`, a bound socket. "
          "`use_libuv` has no effect: there is one server. With `token`, or HOOKLINE_TOKEN in the environment, both "
          "sides prove "
          "that they have the same one before the first request; an empty one is PyTorch's plain protocol. A server "
          "that other hosts reach needs a token, unless `allow_unauthenticated` (HOOKLINE_ALLOW_UNAUTHENTICATED=1) "
          "says that it serves any client.\n\n"
          "The last options limit what all clients of the server use together; a client that exceeds one is refused "
          "or disconnected. 0 connections stand for a share of the limit on file descriptors. `keepalive` is for both "
          "sides: the seconds of silence after which TCP asks whether the other host is still there.")
      .def_prop_ro("host", &TCPStore::host)
      .def_prop_ro("port", &TCPStore::port)
      .def_prop_ro(
          "libuvBackend", [](nb::handle self) { return nb::cast<bool>(nb::getattr(self, kUseLibuv, nb::bool_(true))); },
          "The `use_libuv` that the constructor was given.")
      .def("ping", &TCPStore::ping, nb::call_guard<InterruptibleGilRelease>(), "Returns when the server has answered.");

  nb::class_<Rendezvous>(m, "Rendezvous", "What a process learns at a rendezvous.")
      .def_ro("store", &Rendezvous::store)
      .def_ro("rank", &Rendezvous::rank)
      .def_ro("world_size", &Rendezvous::world_size)
      .def_ro("local_rank", &Rendezvous::local_rank);
  m.def(
      "rendezvous",
      [](const std::string& init_method, std::optional<int> rank, std::optional<int> world_size, TimeoutArg timeout) {
        return releases_gil([&] { return rendezvous(init_method, rank, world_size, timeout); });
      },
      arg("init_method") = "env://", arg("rank") = nb::none(), arg("world_size") = nb::none(),
      arg("timeout") = default_timeout,
      "Finds the store, the rank and the size of this process, as torch.distributed does: env://, file:// or tcp://.");
}

}  // namespace hookline::python
