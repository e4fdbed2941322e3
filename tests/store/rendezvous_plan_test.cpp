// Tests for the rendezvous plan, a pure function of arguments and environment.
#include "store/rendezvous_plan.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <hookline/core/error.hpp>
#include <hookline/store/store.hpp>

namespace hookline::store {
namespace {

using Kind = RendezvousPlan::Kind;

RendezvousPlan plan(std::string_view init_method, const Environment& environment = {}) {
  return plan_rendezvous(init_method, std::nullopt, std::nullopt, environment);
}

void expect_refused(std::string_view init_method, const Environment& environment, const std::string& part,
                    std::optional<int> rank = std::nullopt, std::optional<int> world_size = std::nullopt) {
  try {
    plan_rendezvous(init_method, rank, world_size, environment);
    ADD_FAILURE() << init_method << " was accepted";
  } catch (const InvalidArgument& e) {
    EXPECT_THAT(e.what(), ::testing::HasSubstr(part));
  }
}

TEST(RendezvousPlan, EnvironmentAsInPyTorch) {
  const Environment environment = {
      {"MASTER_ADDR", "::1"}, {"MASTER_PORT", "29500"}, {"RANK", "1"}, {"WORLD_SIZE", "4"}, {"LOCAL_RANK", "0"}};
  const auto made = plan("env://", environment);
  EXPECT_EQ(made.kind, Kind::tcp);
  EXPECT_EQ(made.host, "::1");
  EXPECT_EQ(made.port, 29500);
  EXPECT_EQ(made.rank, 1);
  EXPECT_EQ(made.world_size, 4);
  EXPECT_EQ(made.local_rank, 0);
  EXPECT_FALSE(made.is_master);
  EXPECT_EQ(plan("env://?rank=3&world_size=5", environment).world_size, 5);
  EXPECT_TRUE(plan_rendezvous("env://", 0, 2, environment).is_master);
}

TEST(RendezvousPlan, UnderTorchrunTheAgentServes) {
  Environment environment = {{"MASTER_ADDR", "h"}, {"MASTER_PORT", "1"}, {"RANK", "0"}, {"WORLD_SIZE", "2"}};
  EXPECT_TRUE(plan("env://", environment).is_master);
  environment["TORCHELASTIC_USE_AGENT_STORE"] = "True";
  EXPECT_FALSE(plan("env://", environment).is_master);
  EXPECT_TRUE(plan("env://", environment).joins_agent_store);
  environment["TORCHELASTIC_USE_AGENT_STORE"] = "False";
  EXPECT_TRUE(plan("env://", environment).is_master);
}

TEST(RendezvousPlan, MissingVariablesAreNamed) {
  expect_refused("env://", {}, "variable RANK expected");
  expect_refused("env://", {}, "hookline run");
  expect_refused("env://", {{"RANK", "0"}}, "WORLD_SIZE");
  expect_refused("env://", {{"RANK", "0"}, {"WORLD_SIZE", "2"}}, "MASTER_ADDR");
  expect_refused("env://", {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "h"}}, "MASTER_PORT");
  expect_refused("env://", {{"RANK", ""}, {"WORLD_SIZE", "2"}}, "variable RANK expected");
}

TEST(RendezvousPlan, NumbersAreChecked) {
  const Environment good = {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "h"}, {"MASTER_PORT", "1"}};
  for (const auto& [name, value] : std::vector<std::pair<std::string, std::string>>{{"RANK", "x"},
                                                                                    {"RANK", "1x"},
                                                                                    {"RANK", "99999999999"},
                                                                                    {"WORLD_SIZE", "2.0"},
                                                                                    {"MASTER_PORT", "65536"},
                                                                                    {"MASTER_PORT", "-1"},
                                                                                    {"LOCAL_RANK", "a"}}) {
    Environment bad = good;
    bad[name] = value;
    expect_refused("env://", bad, name);
  }
  expect_refused("env://", good, "rank 2 is out of range for world_size 2", 2);
  expect_refused("env://", good, "rank -1", -1);
}

TEST(RendezvousPlan, WorldSizesOutOfRangeNameTheirSource) {
  const Environment good = {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "h"}, {"MASTER_PORT", "1"}};
  for (const char* size : {"2147483647", "1048577", "0", "-1"}) {
    Environment bad = good;
    bad["WORLD_SIZE"] = size;
    expect_refused("env://", bad, fmt::format("WORLD_SIZE is out of range: expected 1 to 1048576, got {}", size));
  }
  Environment huge = good;
  huge["WORLD_SIZE"] = "99999999999";
  expect_refused("env://", huge, "WORLD_SIZE is out of range");
  expect_refused("env://", good, "world_size is out of range: expected 1 to 1048576, got 0", 0, 0);
  expect_refused("tcp://h:1?rank=0&world_size=2147483647", {}, "world_size is out of range");
  expect_refused("env://", {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2147483647"}}, "SLURM_NTASKS is out of range");
  EXPECT_EQ(plan_rendezvous("env://", 0, kMaxWorldSize, good).world_size, kMaxWorldSize);
}

TEST(RendezvousPlan, LaunchersProvideRankAndSize) {
  const Environment ompi = {{"OMPI_COMM_WORLD_RANK", "1"},
                            {"OMPI_COMM_WORLD_SIZE", "2"},
                            {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                            {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                            {"PMIX_RANK", "1"},
                            {"PMIX_NAMESPACE", "77"}};
  const auto made = plan("env://", ompi);
  EXPECT_EQ(made.kind, Kind::job_file);
  EXPECT_EQ(made.rank, 1);
  EXPECT_EQ(made.world_size, 2);
  EXPECT_EQ(made.local_rank, 1);
  EXPECT_EQ(made.directory, "/tmp");
  EXPECT_THAT(made.job, ::testing::HasSubstr("77"));

  Environment with_master = ompi;
  with_master["MASTER_ADDR"] = "h";
  with_master["MASTER_PORT"] = "5";
  EXPECT_EQ(plan("env://", with_master).kind, Kind::tcp);

  const Environment slurm = {{"SLURM_PROCID", "2"}, {"SLURM_NTASKS", "3"}, {"SLURM_LOCALID", "2"},
                             {"SLURM_NNODES", "1"}, {"SLURM_JOB_ID", "9"}, {"TMPDIR", "/scratch"}};
  EXPECT_EQ(plan("env://", slurm).rank, 2);
  EXPECT_EQ(plan("env://", slurm).directory, "/scratch");
  Environment other_job = slurm;
  other_job["SLURM_JOB_ID"] = "10";
  EXPECT_NE(plan("env://", slurm).job, plan("env://", other_job).job);

  const Environment mpich = {{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}};
  EXPECT_EQ(plan("env://", mpich).kind, Kind::job_file);
  EXPECT_EQ(plan("env://", mpich).job, "");
}

TEST(RendezvousPlan, SeveralHostsNeedAnAddress) {
  const Environment pmi = {{"PMI_RANK", "1"}, {"PMI_SIZE", "4"}, {"MPI_LOCALNRANKS", "2"}};
  expect_refused("env://", pmi, "several hosts");
  expect_refused("env://", pmi, "set MASTER_ADDR and MASTER_PORT");
  expect_refused("env://",
                 {{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}},
                 "several hosts");
  expect_refused("env://", {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_NNODES", "2"}}, "MASTER_ADDR");
}

TEST(RendezvousPlan, SlurmProvidesTheMasterAddress) {
  Environment job = {{"SLURM_PROCID", "3"}, {"SLURM_NTASKS", "4"},    {"SLURM_LOCALID", "1"},
                     {"SLURM_NNODES", "2"}, {"SLURM_JOB_ID", "4711"}, {"SLURM_JOB_NODELIST", "cn[07-08,12]"},
                     {"SLURM_STEP_ID", "0"}};
  const auto made = plan("env://", job);
  EXPECT_EQ(made.kind, Kind::tcp);
  EXPECT_EQ(made.host, "cn07");
  EXPECT_EQ(made.port, 15000 + 4711);
  EXPECT_EQ(made.rank, 3);
  EXPECT_EQ(made.local_rank, 1);
  EXPECT_FALSE(made.is_master);
  EXPECT_TRUE(made.listen_on_all_interfaces);
  job["SLURM_STEP_ID"] = "1";
  EXPECT_NE(plan("env://", job).port, made.port);
  job["SLURM_STEP_NODELIST"] = "cn12,cn13";
  EXPECT_EQ(plan("env://", job).host, "cn12");
  job["SLURM_PROCID"] = "0";
  EXPECT_TRUE(plan("env://", job).is_master);
  job["MASTER_PORT"] = "77";
  EXPECT_EQ(plan("env://", job).port, 77);
  job["MASTER_ADDR"] = "10.0.0.1";
  EXPECT_EQ(plan("env://", job).host, "10.0.0.1");
  EXPECT_FALSE(plan("env://", job).listen_on_all_interfaces);
  job["SLURM_STEP_NUM_NODES"] = "1";  // a step on one of the job's hosts
  job.erase("MASTER_ADDR");
  EXPECT_EQ(plan("env://", job).kind, Kind::job_file);
}

TEST(RendezvousPlan, OpenMpiProvidesTheMasterAddress) {
  Environment job = {{"OMPI_COMM_WORLD_RANK", "0"},
                     {"OMPI_COMM_WORLD_SIZE", "4"},
                     {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                     {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                     {"OMPI_MCA_orte_hnp_uri", "887947264.0;tcp://10.0.0.1,192.168.0.1:49019;tcp6://[fd00::2]:43971"}};
  job["OMPI_MCA_orte_local_daemon_uri"] = job["OMPI_MCA_orte_hnp_uri"];
  const auto master = plan("env://", job);
  EXPECT_EQ(master.host, "10.0.0.1");
  EXPECT_TRUE(master.is_master);
  EXPECT_FALSE(master.listen_on_all_interfaces);
  job["OMPI_COMM_WORLD_RANK"] = "3";
  job["OMPI_MCA_orte_local_daemon_uri"] = "887947264.1;tcp://10.0.0.2:1";
  const auto other = plan("env://", job);
  EXPECT_EQ(other.host, "10.0.0.1");
  EXPECT_EQ(other.port, master.port);
  job["OMPI_COMM_WORLD_RANK"] = "0";  // rank 0 on another host than mpirun
  expect_refused("env://", job, "set MASTER_ADDR");
}

TEST(RendezvousPlan, HostNameOnSeveralHostsListensOnAllInterfaces) {
  Environment job = {{"RANK", "0"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "h"}, {"MASTER_PORT", "1"}};
  EXPECT_FALSE(plan("env://", job).listen_on_all_interfaces);
  job["LOCAL_WORLD_SIZE"] = "4";
  EXPECT_FALSE(plan("env://", job).listen_on_all_interfaces);
  job["LOCAL_WORLD_SIZE"] = "2";
  EXPECT_TRUE(plan("env://", job).listen_on_all_interfaces);
  job["MASTER_ADDR"] = "::1";
  EXPECT_FALSE(plan("env://", job).listen_on_all_interfaces);
}

TEST(RendezvousPlan, HooklineRunFileStoreTakesPrecedence) {
  const auto made =
      plan("env://", {{"HOOKLINE_STORE", "/run/x"}, {"MASTER_ADDR", "h"}, {"RANK", "1"}, {"WORLD_SIZE", "2"}});
  EXPECT_EQ(made.kind, Kind::file);
  EXPECT_EQ(made.path, "/run/x");
  EXPECT_FALSE(made.remove_file);
  EXPECT_EQ(made.local_rank, 1);
}

TEST(RendezvousPlan, HooklineRunTcpStoreIsJoinedByAllRanks) {
  Environment environment = {{"HOOKLINE_STORE", "tcp://[fd00::5]:29500"},
                             {"MASTER_ADDR", "h"},
                             {"MASTER_PORT", "1"},
                             {"RANK", "0"},
                             {"WORLD_SIZE", "2"},
                             {"LOCAL_RANK", "0"}};
  const auto made = plan("env://", environment);
  EXPECT_EQ(made.kind, Kind::tcp);
  EXPECT_EQ(made.host, "fd00::5");
  EXPECT_EQ(made.port, 29500);
  EXPECT_FALSE(made.is_master);
  EXPECT_FALSE(made.joins_agent_store);
  environment["TORCHELASTIC_USE_AGENT_STORE"] = "True";
  EXPECT_FALSE(plan("env://", environment).joins_agent_store) << "the launcher's store comes first";
  environment["HOOKLINE_STORE"] = "tcp://h";
  expect_refused("env://", environment, "port number missing");
}

TEST(RendezvousPlan, Addresses) {
  const auto file = plan("file:///tmp/a%20b?rank=1&world_size=2");
  EXPECT_EQ(file.kind, Kind::file);
  EXPECT_EQ(file.path, "/tmp/a%20b");
  EXPECT_TRUE(file.remove_file);
  const auto tcp = plan("tcp://localhost:29500?world_size=2&rank=0");
  EXPECT_EQ(tcp.kind, Kind::tcp);
  EXPECT_EQ(tcp.host, "localhost");
  EXPECT_EQ(tcp.port, 29500);
  EXPECT_TRUE(tcp.is_master);
  EXPECT_EQ(plan("tcp://[::1]:80/?rank=0&world_size=1").host, "::1");
  EXPECT_EQ(plan_rendezvous("tcp://h:1", 1, 2, {}).rank, 1);

  expect_refused("", {}, "env://");
  expect_refused("http://h:1?rank=0&world_size=1", {}, "http");
  expect_refused("file://?rank=0&world_size=1", {}, "path missing");
  expect_refused("file://relative/x?rank=0&world_size=1", {}, "three slashes");
  expect_refused("file:///x", {{"RANK", "0"}}, "rank parameter missing");
  expect_refused("tcp://h:1?rank=0", {}, "world_size parameter missing");
  expect_refused("tcp://h?rank=0&world_size=1", {}, "port number missing");
  expect_refused("tcp://h:70000?rank=0&world_size=1", {}, "65535");
  expect_refused("tcp://:1?rank=0&world_size=1", {}, "host missing");
  expect_refused("tcp://h:1?rank=0&rank=1&world_size=2", {}, "duplicate parameter rank");
  expect_refused("tcp://h:1?rank=0&world_size=2", {}, "as an argument", 0);
}

}  // namespace
}  // namespace hookline::store
