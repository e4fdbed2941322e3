// Tests invalid hook libraries. The Python tests load a valid one.
#include <cstdlib>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <hookline/core/error.hpp>
#include <hookline/hook/registry.hpp>

#include "harness/temp_directory.hpp"
#include "hook/buckets.hpp"

namespace hookline::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

class HookLibraries : public ::testing::Test {
 protected:
  HookLibraries() { setenv("HOOKLINE_HOOK_PATH", directory_.path().c_str(), 1); }
  ~HookLibraries() override { unsetenv("HOOKLINE_HOOK_PATH"); }
  const test::TempDirectory directory_;
};

TEST_F(HookLibraries, FolderWithoutLibrariesAddsNothing) {
  std::ofstream(directory_ / "notes.txt") << "not a library";
  EXPECT_NO_THROW((void)make_hook("allreduce", single_rank_group()));
}

TEST_F(HookLibraries, RejectsFileThatIsNoLibrary) {
  std::ofstream(directory_ / "libhookline_hook_text.so") << "not a library";
  for (int i = 0; i < 2; ++i) {  // also on the second call
    EXPECT_THAT([] { (void)registered_hooks(); }, ThrowsMessage<Unsupported>(HasSubstr("libhookline_hook_text.so")));
  }
}

TEST_F(HookLibraries, RejectsLibraryOfAnotherVersion) {
  std::filesystem::copy(HOOKLINE_HOOK_WRONG_VERSION, directory_ / "libhookline_hook_a.so");
  EXPECT_THAT(
      [] { (void)make_hook("allreduce", single_rank_group()); },
      ThrowsMessage<Unsupported>(HasSubstr("a library of hooks of version -1, and this library takes version 1")));
}

TEST_F(HookLibraries, RejectsLibraryWithoutHooks) {
  std::filesystem::copy(HOOKLINE_NO_HOOKS, directory_ / "libhookline_hook_b.so");
  EXPECT_THAT([] { (void)hook_options("allreduce"); },
              ThrowsMessage<Unsupported>(
                  HasSubstr("is not a library of hooks of Hookline: it has no hookline_hook_abi_version")));
}

TEST_F(HookLibraries, NamesMissingFolder) {
  setenv("HOOKLINE_HOOK_PATH", "/nowhere/at/all", 1);
  EXPECT_THAT([] { (void)registered_hooks(); }, ThrowsMessage<InvalidArgument>(HasSubstr("/nowhere/at/all")));
}

}  // namespace
}  // namespace hookline::testing
