// Group fixture: processes whose groups are PyTorch's Gloo groups behind the adapter.
#include <memory>
#include <string>

#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <hookline/store/file_store.hpp>

#include "adapter/libtorch/group.hpp"
#include "adapter/libtorch/python_work.hpp"
#include "harness/spawn.hpp"

namespace hookline::libtorch {

// Stubs: this program has no Python works and futures.
c10::intrusive_ptr<c10::ivalue::Future> future_of_work(const c10::intrusive_ptr<c10d::Work>& work) {
  return work->getFuture();
}
bool overrides_wait(const c10::intrusive_ptr<c10d::Work>&) { return false; }
std::exception_ptr exception_from(const c10::IValue&) { return nullptr; }

}  // namespace hookline::libtorch

namespace hookline::testing {

std::vector<GroupFixture> group_fixtures() {
  GroupFixture fixture = processes_fixture("torch", [](const std::shared_ptr<Store>& store, int rank, int ranks) {
    const std::string path = dynamic_cast<const FileStore&>(*store).path() + "-torch";
    const auto meeting = c10::make_intrusive<c10d::FileStore>(path, ranks);
    const auto options = c10d::ProcessGroupGloo::Options::create(std::chrono::seconds(60));
    options->devices = {c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1")};
    const auto group = c10::make_intrusive<c10d::ProcessGroup>(meeting, rank, ranks);
    group->setBackend(c10::kCPU, c10d::ProcessGroup::GLOO,
                      c10::make_intrusive<c10d::ProcessGroupGloo>(meeting, rank, ranks, options));
    group->setDefaultBackend(c10d::ProcessGroup::GLOO);
    return std::make_shared<libtorch::TorchGroup>(group);
  });
  fixture.reports_failures = false;
  fixture.subgroups = false;
  return {fixture};
}

}  // namespace hookline::testing
