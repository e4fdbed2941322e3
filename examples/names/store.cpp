// The names of the room store in use: one program for every kind of table in which processes find each other.
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

#include <unistd.h>

#include <hookline/hookline.hpp>

#include "expect.hpp"
namespace hl = hookline;

namespace {

/// What every store can do; a get waits until somebody has set the key.
void use(hl::Store& store) {
  store.set("address", "10.0.0.7");
  expect(store.get("address") == "10.0.0.7" && store.check({"address"}));
  expect(store.add("visitors", 2) == 2 && store.add("visitors", 1) == 3);
  expect(store.compare_set("address", "10.0.0.7", "10.0.0.8") == "10.0.0.8");
  store.queue_push("work", "first");
  expect(store.queue_pop("work") == "first");
  expect(store.clone()->get("address") == "10.0.0.8");  // for another thread
  store.barrier("all are here", 1, hl::Milliseconds(1000));
  try {
    store.wait({"what nobody sets"}, hl::Milliseconds(10));
    expect(false);
  } catch (const hl::Timeout& error) {
    std::printf("%s\n", error.what());
  }
}

}  // namespace

int main() {
  hl::MemoryStore threads;  // for ranks that are threads of one process
  use(threads);

  const std::string path = std::filesystem::temp_directory_path() / ("names_store_" + std::to_string(::getpid()));
  {
    hl::FileStore processes(path, 1);  // for processes of one host; the last of so many removes the file
    use(processes);
  }
  expect(!std::filesystem::exists(path));

  hl::TCPStoreLimits limits;
  limits.max_keys = 1000;  // of all clients together
  // Only processes that have the token are served.
  hl::TCPStoreOptions options = {
      .is_master = true, .wait_for_workers = false, .token = "a secret of the job", .limits = limits};
  const auto hosts = std::make_shared<hl::TCPStore>(options);  // for processes of several hosts
  use(*hosts);
  options = {.port = hosts->port(), .token = "a secret of the job"};
  hl::TCPStore client(options);
  expect(client.get("address") == "10.0.0.8");

  hl::PrefixStore mine("mine", hosts);  // a part of another store
  use(mine);
  expect(client.get("mine/address") == "10.0.0.8");

  // What init_process_group does first; env:// reads what the launcher has set.
  const hl::Rendezvous job = hl::rendezvous("file://" + path + "?rank=0&world_size=1");
  use(*job.store);
  expect(job.rank == 0 && job.world_size == 1 && job.world_size <= hl::kMaxWorldSize);
}
