// Tests for the rendezvous under real launchers: all ranks join, and no files remain.
#include <hookline/store/rendezvous.hpp>

#include <sys/stat.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <utility>

#include <gmock/gmock.h>

#include <hookline/store/tcp_store.hpp>

#include "harness/temp_directory.hpp"

namespace hookline {
namespace {

using ::testing::HasSubstr;

struct Outcome {
  int status;
  std::string output;
};

/// Runs a shell command with a deadline and its own TMPDIR, without inherited launcher variables.
Outcome run(const std::string& command, const std::string& temporary) {
  const std::string whole =
      "cd / && env -u RANK -u WORLD_SIZE -u LOCAL_RANK -u MASTER_ADDR -u MASTER_PORT -u HOOKLINE_STORE TMPDIR=" +
      temporary + " timeout -k 5 100 sh -c '" + command + "' 2>&1";
  FILE* pipe = ::popen(whole.c_str(), "r");
  if (!pipe) return {-1, "popen failed"};
  Outcome outcome{0, {}};
  char buffer[4096];
  while (const std::size_t got = std::fread(buffer, 1, sizeof buffer, pipe)) outcome.output.append(buffer, got);
  outcome.status = ::pclose(pipe);
  return outcome;
}

const std::string kProgram = HOOKLINE_RENDEZVOUS_PROGRAM;
const std::string kPython = HOOKLINE_PYTHON_EXECUTABLE;

void expect_two_ranks(const Outcome& outcome, const std::string& store) {
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("rank 0 of 2, local 0, through " + store));
  EXPECT_THAT(outcome.output, HasSubstr("rank 1 of 2, local 1, through " + store));
}

TEST(Rendezvous, UnderTorchrunThroughTheAgentsStore) {
  test::TempDirectory directory;
  expect_two_ranks(run(kPython +
                           " -m torch.distributed.run --nproc-per-node 2 --master-addr 127.0.0.1 --master-port 0 "
                           "--rdzv-backend c10d --rdzv-endpoint 127.0.0.1:0 --no-python " +
                           kProgram,
                       directory.path()),
                   "TCPStore(");
}

TEST(Rendezvous, UnderMpirunThroughATemporaryFile) {
  test::TempDirectory directory;
  expect_two_ranks(run("mpirun -n 2 --allow-run-as-root --oversubscribe " + kProgram, directory.path()),
                   "FileStore(" + directory.path() + "/hookline-");
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

TEST(Rendezvous, UnderMpirunRejectsAForeignDirectory) {
  test::TempDirectory directory;
  const std::string alone = "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1 PMIX_NAMESPACE=1 " + kProgram;
  const auto first = run(alone, directory.path());
  EXPECT_EQ(first.status, 0) << first.output;
  const auto begin = first.output.find(directory.path());
  ASSERT_NE(begin, std::string::npos);
  const std::string own = first.output.substr(begin, first.output.find("/store", begin) - begin);
  ASSERT_TRUE(std::filesystem::create_directory(own));
  ASSERT_EQ(::chmod(own.c_str(), 0755), 0);
  const auto second = run(alone, directory.path());
  EXPECT_NE(second.status, 0);
  EXPECT_THAT(second.output, HasSubstr("0700"));
  ASSERT_TRUE(std::filesystem::remove(own));
  std::filesystem::create_directory_symlink(directory.path(), own);
  EXPECT_THAT(run(alone, directory.path()).output, HasSubstr("0700"));
}

/// Sets environment variables and unsets them on destruction.
class ScopedEnvironment {
 public:
  explicit ScopedEnvironment(std::map<std::string, std::string> values) : values_(std::move(values)) {
    for (const auto& [name, value] : values_) setenv(name.c_str(), value.c_str(), 1);
  }
  ~ScopedEnvironment() {
    for (const auto& [name, value] : values_) unsetenv(name.c_str());
  }
  ScopedEnvironment(const ScopedEnvironment&) = delete;
  ScopedEnvironment& operator=(const ScopedEnvironment&) = delete;

 private:
  const std::map<std::string, std::string> values_;
};

TEST(Rendezvous, UnderMpirunARankMayRetry) {
  test::TempDirectory directory;
  const ScopedEnvironment variables({{"OMPI_COMM_WORLD_RANK", "0"},
                                     {"OMPI_COMM_WORLD_SIZE", "2"},
                                     {"PMIX_NAMESPACE", "1"},
                                     {"TMPDIR", directory.path()}});
  const Rendezvous failed = rendezvous("env://", 0, 2);
  const Rendezvous again = rendezvous("env://", 0, 2);
  again.store->set("key", "value");
  EXPECT_TRUE(rendezvous("env://", 1, 2).store->check({"key"}));
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
  for (const int rank : {0, 1}) EXPECT_TRUE(rendezvous("env://", rank, 2).store->check({"key"})) << "once more";
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

TEST(Rendezvous, ByFile) {
  test::TempDirectory directory;
  const std::string url = "\"file://" + directory.path() + "/store?world_size=2&rank=";
  expect_two_ranks(
      run(kProgram + " " + url + "0\" & first=$!; " + kProgram + " " + url + "1\" && wait $first", directory.path()),
      "FileStore(" + directory.path() + "/store)");
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

TEST(Rendezvous, ByHooklineStoreVariable) {
  test::TempDirectory directory;
  const std::string rest = " WORLD_SIZE=2 HOOKLINE_STORE=" + (directory / "store") + " " + kProgram;
  expect_two_ranks(run("RANK=0" + rest + " & first=$!; RANK=1" + rest + " && wait $first", directory.path()),
                   "FileStore(" + directory.path() + "/store)");
}

TEST(Rendezvous, ByAddress) {
  std::uint16_t port = 0;
  {
    TCPStoreOptions options;
    options.is_master = true;
    port = TCPStore(options).port();
  }
  test::TempDirectory directory;
  const std::string rest = " WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=" + std::to_string(port) + " " + kProgram;
  expect_two_ranks(run("RANK=1 LOCAL_RANK=1" + rest + " & second=$!; RANK=0 LOCAL_RANK=0" + rest + " && wait $second",
                       directory.path()),
                   "TCPStore(");
}

std::string url_of(const Rendezvous& found, int rank) {
  const auto& store = dynamic_cast<const TCPStore&>(*found.store);
  return "tcp://127.0.0.1:" + std::to_string(store.port()) + "?world_size=2&rank=" + std::to_string(rank);
}

TEST(Rendezvous, ServerRankDoesNotWaitAndReusesItsServer) {
  const Rendezvous first = rendezvous("tcp://127.0.0.1:0?world_size=2&rank=0");
  first.store->set("key", "value");
  const Rendezvous second = rendezvous(url_of(first, 0), std::nullopt, std::nullopt, std::chrono::seconds(7));
  EXPECT_EQ(second.store->get("key"), "value");
  EXPECT_EQ(second.store->timeout(), std::chrono::seconds(7));
}

TEST(Rendezvous, ServerOutlivesItsStore) {
  Rendezvous first = rendezvous("tcp://127.0.0.1:0?world_size=2&rank=0");
  const std::string again = url_of(first, 0);
  const Rendezvous other = rendezvous(url_of(first, 1));
  first.store.reset();
  other.store->set("key", "value");
  EXPECT_EQ(rendezvous(again).store->get("key"), "value");
}

TEST(Rendezvous, WithoutALauncherTheErrorNamesTheVariable) {
  test::TempDirectory directory;
  const auto outcome = run(kProgram, directory.path());
  EXPECT_NE(outcome.status, 0);
  EXPECT_THAT(outcome.output, HasSubstr("RANK expected, but not set"));
}

}  // namespace
}  // namespace hookline
