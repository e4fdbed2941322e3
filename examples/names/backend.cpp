// The names of the room backend in use: what moves the bytes of a group, by name and of one's own. Ranks are threads.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <hookline/hookline.hpp>

#include "expect.hpp"
namespace hl = hookline;

namespace {

/// Gets all ranks' blocks where they lie, instead of a copy.
class Largest final : public hl::BlockReader {
 public:
  void read(std::span<const std::byte* const> blocks, std::size_t bytes) noexcept override {
    for (const std::byte* block : blocks) {
      const auto* values = reinterpret_cast<const float*>(block);
      value = std::max(value, *std::max_element(values, values + bytes / sizeof(float)));
    }
  }
  float value = 0;
};

/// Adds up between hosts what was added up inside each: where a cheaper way between hosts would stand.
class BetweenHosts final : public hl::SliceReducer {
 public:
  std::string name() const override { return "a sum"; }  // ranks whose reducers are called otherwise: a Mismatch
  void reduce(const std::shared_ptr<hl::Backend>& counterparts, const hl::Tensor& slice, std::size_t, int lane,
              hl::Milliseconds timeout) override {
    counterparts->start({.type = hl::OpType::allreduce, .inputs = {}, .outputs = {slice}}, lane, timeout)->wait();
  }
};

hl::Future<float> first_output(hl::WorkPtr work) {
  const std::vector<hl::Tensor> outputs = co_await work;  // through an hl::WorkAwaiter
  co_return outputs[0].item<float>();
}

void rank_of_threads(const std::shared_ptr<hl::Backend>& backend) {
  const auto group = hl::make_group(backend);
  const hl::Capabilities can = group->capabilities();
  expect(can.lanes > 1 && can.readers);

  // Every operation is a Collective; the group's named methods make one.
  BetweenHosts between;
  hl::Collective sum = {.type = hl::OpType::allreduce, .inputs = {}, .outputs = {hl::Tensor::full({1}, 1.0)}};
  if (can.levels) sum.between = &between;
  expect(hl::works_in_place(sum.type) && hl::sources(sum).size() == 1 && std::size_t(sum.type) < hl::kOpTypes);
  expect(first_output(group->run(sum)).wait() == 2);

  Largest largest;
  const hl::Tensor mine = group->empty({1});
  mine.fill(group->rank() + 1);
  group->run({.type = hl::OpType::allgather_into_tensor, .inputs = {mine}, .outputs = {}, .reader = &largest})->wait();
  expect(largest.value == 2);

  const hl::Tensor message = hl::Tensor::full({1}, 7);
  if (group->rank() == 0) {
    group->send(message, 1)->wait();
  } else {  // recv_anysource is a receive from this source
    group->run({.type = hl::OpType::recv_anysource, .inputs = {}, .outputs = {message}, .root = hl::kAnySource})
        ->wait();
  }
  // What a group of one's own returns: a work of any future.
  const hl::WorkPtr work = hl::make_work(hl::Future<std::vector<hl::Tensor>>::ready({message}), hl::OpType::recv);
  expect(work->is_success() && name(work->op_type()) == "recv");
}

/// An engine carries messages between hosts, each found by its address; this one has nobody to send to.
class Alone final : public hl::Engine {
 public:
  std::string name() const override { return "alone"; }
  int rank() const override { return 0; }
  int size() const override { return 1; }
  std::unique_ptr<hl::Message> send(int, hl::MessageAddress, const std::byte*, std::size_t) override { nobody(); }
  std::unique_ptr<hl::Message> receive(int, hl::MessageAddress, std::byte*, std::size_t) override { nobody(); }
  std::unique_ptr<hl::Message> receive_any(hl::MessageAddress address, std::byte*, std::size_t room) override {
    expect(address.channel == hl::kMailChannel && room <= hl::kMailBytes);
    nobody();
  }
  void check(int) override {}
  void left(int) noexcept override {}
  void close() noexcept override {}
  std::shared_ptr<Engine> subset(const std::vector<int>&, const std::string&, hl::Milliseconds) override { nobody(); }

 private:
  [[noreturn]] static void nobody() { throw hl::PeerLost("there is nobody else"); }
};

}  // namespace

int main() {
  {
    const auto ranks = hl::make_threads_backends(2);
    const std::jthread first(rank_of_threads, ranks[0]);
    const std::jthread second(rank_of_threads, ranks[1]);
  }
  for (const std::string& name : hl::backend_names()) std::printf("there is %s\n", name.c_str());
  try {
    hl::check_backend("pigeons");  // before anybody is met
    expect(false);
  } catch (const hl::InvalidArgument& error) {
    std::printf("%s\n", error.what());
  }

  // By name and by function; every rank of the group makes its own in a store for this group alone.
  const auto setting = [] {
    return hl::EngineSetting{.store = std::make_shared<hl::MemoryStore>(), .rank = 0, .size = 1};
  };
  expect(hl::make_backend("shm", setting())->name() == "shm");
  const auto alone = hl::make_shm_backend(std::make_shared<hl::MemoryStore>(), 0, 1, std::chrono::seconds(30),
                                          hl::ShmWaiting::sleep);  // leaves its core to others while it waits
  expect(alone->size() == 1);
  expect(hl::make_layered_backend(setting())->size() == 1);  // shm inside hosts, an engine between them
  expect(hl::make_default_backend(setting())->name() == "shm");

  const auto engine = hl::make_engine_backend(std::make_shared<Alone>());
  expect(engine->name() == "alone" && engine->capabilities().lanes == hl::kEngineLanes && hl::kEngineVersion >= 1);
}
