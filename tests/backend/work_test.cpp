// Works that wrap a future.
#include <hookline/backend/work.hpp>

#include <gtest/gtest.h>

#include <hookline/core/error.hpp>

namespace hookline {
namespace {

using namespace std::chrono_literals;

TEST(MakeWork, ReflectsItsFuture) {
  Promise<std::vector<Tensor>> promise;
  const WorkPtr work = make_work(promise.get_future(), OpType::broadcast, 5);
  EXPECT_FALSE(work->is_completed());
  EXPECT_THROW(work->wait(1ms), Timeout);
  EXPECT_THROW(work->result(), InvalidArgument);
  promise.set_value({Tensor::full({2}, 3)});
  work->wait(10s);
  EXPECT_TRUE(work->is_success());
  EXPECT_EQ(work->result().size(), 1u);
  EXPECT_EQ(work->op_type(), OpType::broadcast);
  EXPECT_EQ(work->sequence_number(), 5u);
  EXPECT_LE(work->time_started(), work->time_finished());
}

}  // namespace
}  // namespace hookline
