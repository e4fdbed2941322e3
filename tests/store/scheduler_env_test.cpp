// Tests for Slurm host lists and for incomplete scheduler variables.
#include "store/scheduler_env.hpp"

#include <gtest/gtest.h>

namespace hookline::store {
namespace {

TEST(SchedulerEnv, FirstHostOfAList) {
  EXPECT_EQ(first_host("node"), "node");
  EXPECT_EQ(first_host("a,b"), "a");
  EXPECT_EQ(first_host("node[01-03,07],gpu5"), "node01");
  EXPECT_EQ(first_host("node[7,9-12].cluster.org,x"), "node7.cluster.org");
  EXPECT_EQ(first_host("rack[1-2]node[3-4]"), "rack1node3");
  EXPECT_EQ(first_host(""), "");
  EXPECT_EQ(first_host("node[12"), "node12");
  EXPECT_EQ(first_host("node["), "node");
}

TEST(SchedulerEnv, SlurmWithoutAList) {
  EXPECT_EQ(slurm_master({{"SLURM_JOB_ID", "1"}, {"SLURM_LAUNCH_NODE_IPADDR", "10.1.2.3"}}).value().host, "10.1.2.3");
  EXPECT_FALSE(slurm_master({{"SLURM_JOB_ID", "1"}}));
  EXPECT_FALSE(slurm_master({{"SLURM_JOB_NODELIST", "a"}}));
  EXPECT_FALSE(slurm_master({{"SLURM_JOB_NODELIST", "a"}, {"SLURM_JOB_ID", "x"}}));
  const auto big = slurm_master(
      {{"SLURM_JOB_NODELIST", "a"}, {"SLURM_JOB_ID", "18446744073709551615"}, {"SLURM_STEP_ID", "4294967291"}});
  EXPECT_GE(big.value().port, 15000);
  EXPECT_LT(big.value().port, 30000);
}

TEST(SchedulerEnv, OpenMpiWithoutAnAddress) {
  EXPECT_FALSE(open_mpi_master({}, 0));
  EXPECT_FALSE(open_mpi_master({{"OMPI_MCA_orte_hnp_uri", "nonsense"}}, 1));
  EXPECT_FALSE(open_mpi_master({{"OMPI_MCA_orte_hnp_uri", "7.0;tcp://"}}, 1));
  EXPECT_FALSE(open_mpi_master({{"OMPI_MCA_orte_hnp_uri", "7.0;usock"}}, 1));
}

}  // namespace
}  // namespace hookline::store
