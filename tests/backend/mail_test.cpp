// Messages between two ranks that are stepped by hand: what a receiver may see while a sender is at work.
#include <gtest/gtest.h>

#include "backend/embedded/engine.hpp"
#include "backend/threads/threads_memory.hpp"

namespace hookline::embedded {
namespace {

class Mails : public ::testing::Test {
 protected:
  Mails() {
    for (int r = 0; r < 2; ++r) {
      auto memory = std::make_unique<threads::ThreadsMemory>(world_, r);
      engines_[static_cast<std::size_t>(r)] =
          std::make_shared<Engine>(std::move(memory), EngineOptions{.name = "test", .progress_thread = false});
      engines_[static_cast<std::size_t>(r)]->open();
    }
  }
  ~Mails() override {
    for (auto& engine : engines_) engine->close();
  }

  std::shared_ptr<Pending> send(float value) {
    Collective what{.type = OpType::send, .inputs = {Tensor::full({1}, value)}, .outputs = {}, .root = 1};
    return engines_[0]->start(std::move(what), 0, Milliseconds{10'000});
  }
  std::shared_ptr<Pending> receive(const Tensor& into) {
    return engines_[1]->start({.type = OpType::recv, .inputs = {}, .outputs = {into}, .root = 0}, 0,
                              Milliseconds{10'000});
  }

  const std::shared_ptr<threads::World> world_ = std::make_shared<threads::World>(2, false);
  std::array<std::shared_ptr<Engine>, 2> engines_;
};

// As for a receiver that looked into the first mailbox before the sender filled it, and into the second one after.
TEST_F(Mails, AreTakenInTheirOrderEvenWhereALaterOneIsSeenFirst) {
  ASSERT_TRUE(send(1)->over());
  ASSERT_TRUE(send(2)->over());
  Counter& first = world_->block(0).mail[1][0].message;
  first.store(0);
  const Tensor a = Tensor::zeros({1});
  const Tensor b = Tensor::zeros({1});
  const auto one = receive(a);
  const auto two = receive(b);
  engines_[1]->drive();
  EXPECT_FALSE(one->over());
  EXPECT_FALSE(two->over());
  first.store(1);
  engines_[1]->drive();
  ASSERT_TRUE(one->over());
  ASSERT_TRUE(two->over());
  EXPECT_EQ(a.data<float>()[0], 1);
  EXPECT_EQ(b.data<float>()[0], 2);
}

// Who looks around has seen that the peer left, but not yet what it had sent before.
TEST_F(Mails, OfARankThatLeftAreTakenBeforeItIsMissed) {
  ASSERT_TRUE(send(1)->over());
  Counter& message = world_->block(0).mail[1][0].message;
  message.store(0);
  const Tensor a = Tensor::zeros({1});
  const auto one = receive(a);
  message.store(1);
  engines_[0]->close();
  engines_[1]->look_around();
  ASSERT_TRUE(one->over());
  EXPECT_EQ(one->exception(), nullptr);
  EXPECT_EQ(a.data<float>()[0], 1);
}

}  // namespace
}  // namespace hookline::embedded
