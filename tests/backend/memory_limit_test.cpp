// Available memory, read from simulated /proc and cgroup files.
#include "backend/shm/memory_limit.hpp"

#include <cstdint>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "harness/temp_directory.hpp"

namespace hookline::shm {
namespace {

class MemoryLimit : public ::testing::Test {
 protected:
  void write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root_.path() + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  std::uint64_t available() const { return available_bytes(root_.path()); }

 private:
  const test::TempDirectory root_;
};

TEST_F(MemoryLimit, UnlimitedWhenUnknown) { EXPECT_EQ(available(), UINT64_MAX); }

TEST_F(MemoryLimit, HostMemory) {
  write("/proc/meminfo", "MemTotal:       100 kB\nMemFree:    5 kB\nMemAvailable:   70 kB\n");
  EXPECT_EQ(available(), 70u * 1024);
}

TEST_F(MemoryLimit, TightestCgroupLimitApplies) {
  write("/proc/meminfo", "MemAvailable:   70 kB\n");
  write("/proc/self/cgroup", "0::/pod/container\n");
  write("/sys/fs/cgroup/pod/memory.max", "9000\n");
  write("/sys/fs/cgroup/pod/memory.current", "4000\n");
  write("/sys/fs/cgroup/pod/container/memory.max", "max\n");
  write("/sys/fs/cgroup/pod/container/memory.current", "3000\n");
  EXPECT_EQ(available(), 5000u);
  write("/sys/fs/cgroup/pod/memory.stat", "anon 3000\ninactive_file 500\nactive_file 500\n");
  EXPECT_EQ(available(), 5500u) << "inactive file pages count as available";
  write("/sys/fs/cgroup/pod/memory.current", "10000\n");
  EXPECT_EQ(available(), 0u) << "usage exceeds the limit";
}

TEST_F(MemoryLimit, ContainerWithCgroupNamespace) {
  write("/proc/self/cgroup", "0::/outside/and/not/to/be/seen\n");
  write("/sys/fs/cgroup/memory.max", "1000\n");
  write("/sys/fs/cgroup/memory.current", "400\n");
  EXPECT_EQ(available(), 600u);
}

TEST_F(MemoryLimit, CgroupV1) {
  write("/proc/self/cgroup", "5:cpu,cpuacct:/a\n4:memory:/a\n0::/\n");
  write("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "1000\n");
  write("/sys/fs/cgroup/memory/a/memory.usage_in_bytes", "900\n");
  write("/sys/fs/cgroup/memory/a/memory.stat", "inactive_file 1\ntotal_inactive_file 50\n");
  EXPECT_EQ(available(), 150u);
}

}  // namespace
}  // namespace hookline::shm
