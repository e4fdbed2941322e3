// Loading of transport libraries: missing, unknown and invalid ones.
#include "backend/p2p/load_transport.hpp"

#include <cstdlib>
#include <fstream>

#include <gmock/gmock.h>

#include <hookline/backend/make_backend.hpp>
#include <hookline/core/error.hpp>

#include "harness/temp_directory.hpp"

namespace hookline {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

class TransportPath : public ::testing::Test {
 protected:
  TransportPath() { setenv("HOOKLINE_TRANSPORT_PATH", directory_.path().c_str(), 1); }
  ~TransportPath() override { unsetenv("HOOKLINE_TRANSPORT_PATH"); }
  const test::TempDirectory directory_;
};

TEST(LoadTransport, MissingTransportSaysWhatToInstall) {
  EXPECT_THAT([] { p2p::load_transport("nowhere", "Debian's libnowhere-dev"); },
              ThrowsMessage<Unsupported>(AllOf(HasSubstr("libnowhere-dev"), HasSubstr("libhookline_nowhere.so"))));
}

TEST(LoadTransport, UnknownNameListsKnownBackends) {
  for (const char* const name : {"no_such_transport", "", "../evil", "a b"}) {
    EXPECT_THAT([&] { check_backend(name); },
                ThrowsMessage<InvalidArgument>(HasSubstr("expected one of shm, hierarchical, gloo, mpi")));
  }
  EXPECT_THAT(backend_names(), Contains("gloo"));
}

TEST_F(TransportPath, InvalidLibraryIsReportedWithReason) {
  std::ofstream(directory_ / "libhookline_text.so") << "not a library";
  EXPECT_THAT([] { check_backend("text"); }, ThrowsMessage<Unsupported>(HasSubstr("cannot be loaded")));
}

TEST_F(TransportPath, UserPathsComeFirst) {
  setenv("HOOKLINE_TRANSPORT_PATH", "/first::/second", 1);
  const auto paths = p2p::library_paths("mpi");
  ASSERT_EQ(paths.size(), 3u);
  EXPECT_EQ(paths[0], "/first/libhookline_mpi.so");
  EXPECT_EQ(paths[1], "/second/libhookline_mpi.so");
  EXPECT_EQ(paths[2].filename(), "libhookline_mpi.so");
}

}  // namespace
}  // namespace hookline
