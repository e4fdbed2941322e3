// A process group in C++. Run it on several ranks: hookline run -n 2 build/dev/examples/example_process_group
#include <chrono>
#include <cstdio>
#include <vector>

#include <hookline/hookline.hpp>
namespace hl = hookline;

int main() {
  auto group = hl::init_process_group();  // shared_ptr<ProcessGroup>
  std::vector<float> x(1000, float(group->rank() + 1));
  group->allreduce(hl::Tensor::borrow(x))->wait(std::chrono::seconds(5));
  std::printf("rank %d of %d: %g\n", group->rank(), group->size(), x[999]);
}
