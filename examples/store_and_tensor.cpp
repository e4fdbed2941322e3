// Two ranks of one process hand a tensor over through a TCP store: one writes it, the other reads, scales and returns
// it.
#include <hookline/hookline.hpp>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

namespace hl = hookline;

namespace {

std::string bytes_of(const hl::Tensor& tensor) {
  return {reinterpret_cast<const char*>(tensor.bytes()), tensor.nbytes()};
}

// A coroutine: it starts in its caller's thread and goes on when the tensor is there.
hl::Future<hl::Tensor> scaled(hl::Future<hl::Tensor> incoming, double factor) {
  hl::Tensor tensor = co_await incoming;
  tensor *= factor;
  co_return tensor;
}

// Rank 1: waits for the tensor, doubles it, and puts it back under another key.
void work(std::uint16_t port) {
  hl::TCPStore store({.port = port, .world_size = 2, .timeout = std::chrono::seconds(10)});
  hl::Promise<hl::Tensor> promise;
  hl::Future<hl::Tensor> result = scaled(promise.get_future(), 2.0);

  std::string bytes = store.get("gradient");
  promise.set_value(hl::Tensor::wrap(bytes.data(), {2, 3}, hl::DType::f32));
  store.set("doubled", bytes_of(result.wait(std::chrono::seconds(10))));
}

}  // namespace

int main() {
  // Port 0 asks for a free port. The server listens on 127.0.0.1 only.
  hl::TCPStore store({.is_master = true, .timeout = std::chrono::seconds(10), .wait_for_workers = false});
  std::cout << "rank 0 keeps " << store.describe() << '\n';
  std::jthread rank1(work, store.port());

  std::vector<float> values = {1, 2, 3, 4, 5, 6};
  const hl::Tensor gradient = hl::Tensor::borrow(values).reshape({2, 3});
  store.set("gradient", bytes_of(gradient));
  std::cout << "rank 0 sent " << to_string(gradient) << '\n';

  std::string bytes = store.get("doubled");
  const hl::Tensor doubled = hl::Tensor::wrap(bytes.data(), {2, 3}, hl::DType::f32);
  std::cout << "rank 1 sent back";
  for (int i = 0; i < 6; ++i) std::cout << ' ' << doubled.flatten().data<const float>()[i];
  std::cout << '\n';

  try {
    store.wait({"a key that never comes"}, std::chrono::milliseconds(50));
  } catch (const hl::Timeout& error) {
    std::cout << "and a wait ends: " << error.what() << '\n';
  }
}
