// Tests for FileStore: store contract, killed processes, corrupt files, compaction and links.
#include <hookline/store/file_store.hpp>

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <random>
#include <sstream>
#include <thread>

#include <hookline/core/interrupt.hpp>

#include "contract/store_contract.hpp"
#include "harness/temp_directory.hpp"
#include "store/record.hpp"

namespace hookline::contract {

const test::TempDirectory& directory() {
  static const test::TempDirectory made;
  return made;
}

INSTANTIATE_TEST_SUITE_P(File, StoreContract,
                         ::testing::Values(StoreFactory{
                             [] {
                               static std::atomic<int> number = 0;
                               return std::make_shared<FileStore>(directory() / std::to_string(number++));
                             },
                             [](const std::shared_ptr<Store>& store) {
                               return std::make_shared<FileStore>(dynamic_cast<FileStore&>(*store).path());
                             }}));

}  // namespace hookline::contract

namespace hookline {
namespace {

using test::TempDirectory;

std::string contents_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

void write_file(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

std::int64_t blocks_of(const std::string& path) {
  struct stat info{};
  return ::stat(path.c_str(), &info) == 0 ? info.st_blocks * 512 : -1;
}

/// Runs `body` in a forked process, which exits without the parent's cleanup.
template <class F>
pid_t forked(F body) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  try {
    body();
  } catch (const std::exception& e) {
    fprintf(stderr, "child: %s\n", e.what());
    ::_exit(1);
  }
  ::_exit(0);
}

int status_of(pid_t child) {
  int status = 0;
  ::waitpid(child, &status, 0);
  return status;
}

TEST(FileStore, ProcessesShareCountersQueuesAndBarriers) {
  TempDirectory directory;
  const std::string path = directory / "store";
  std::vector<pid_t> children;
  for (int i = 0; i < 3; ++i) {
    children.push_back(forked([&] {
      FileStore store(path, -1, std::chrono::seconds(20));
      store.barrier("b", 3, std::chrono::seconds(20));  // start at the same time
      for (int n = 0; n < 3000; ++n) store.add("sum", 1);
      store.barrier("b", 3, std::chrono::seconds(20));
      if (store.get("sum") != "9000") throw std::runtime_error("sum is " + store.get("sum"));
      for (int n = 0; n < 20; ++n) store.barrier("b", 3, std::chrono::seconds(20));
    }));
  }
  for (const pid_t child : children) EXPECT_EQ(status_of(child), 0);
}

// The victim writes operations in a fixed order. At any time of its death, the other processes see a complete prefix of
// them and continue.
TEST(FileStore, KilledWriterLeavesACompletePrefix) {
  TempDirectory directory;
  std::mt19937 random(20240607);
  const std::string filler(20000, 'x');
  for (int round = 0; round < 40; ++round) {
    const std::string path = directory / std::to_string(round);
    FileStore store(path, -1, std::chrono::seconds(20));
    const pid_t victim = forked([&] {
      FileStore own(path);
      for (std::int64_t n = 1;; ++n) {
        own.set("value", std::to_string(n) + filler);
        own.add("count", 1);
        own.append("log", "x");
        own.queue_push("q", std::to_string(n));
        if (n % 8 == 0) own.queue_pop("q");
      }
    });
    store.wait({"value"});
    ::usleep(static_cast<useconds_t>(random() % 15000));
    ::kill(victim, SIGKILL);
    status_of(victim);

    const std::string value = store.get("value");
    const auto count = store.add("count", 0);
    const std::int64_t n = std::stoll(value.substr(0, value.size() - filler.size()));
    EXPECT_TRUE(value.ends_with(filler));
    EXPECT_TRUE(count == n || count == n - 1) << count << " after " << n;
    store.append("log", "!");
    store.queue_push("q", "mine");
    FileStore fresh(path);
    EXPECT_EQ(fresh.get("value"), value);
    EXPECT_EQ(fresh.get("log"), store.get("log"));
    EXPECT_EQ(fresh.queue_len("q"), store.queue_len("q"));
  }
}

TEST(FileStore, TruncatedTailIsIgnoredAndOverwritten) {
  TempDirectory directory;
  const std::string path = directory / "store";
  std::vector<std::size_t> ends = {0};
  {
    FileStore store(path);
    for (int n = 0; n < 4; ++n) {
      store.set("k" + std::to_string(n), std::string(static_cast<std::size_t>(n) * 7, 'v'));
      ends.push_back(contents_of(path).size());
    }
  }
  const std::string whole = contents_of(path);
  for (std::size_t size = 0; size <= whole.size(); ++size) {
    write_file(path, whole.substr(0, size));
    FileStore store(path);
    const auto kept = std::upper_bound(ends.begin(), ends.end(), size) - ends.begin() - 1;
    EXPECT_EQ(store.num_keys(), kept) << "cut at " << size;
    EXPECT_EQ(store.add("new", 1), 1);
    EXPECT_EQ(FileStore(path).num_keys(), kept + 1) << "cut at " << size;
  }
}

TEST(FileStore, EveryFlippedByteIsDetected) {
  TempDirectory directory;
  const std::string path = directory / "store";
  {
    FileStore store(path);
    store.set("a", "12345");
    store.queue_push("q", "element");
    store.set("b", std::string(100, 'b'));
  }
  const std::string whole = contents_of(path);
  for (std::size_t at = 0; at < whole.size(); ++at) {
    for (const int flip : {1, 0x80, 0xff}) {
      std::string bytes = whole;
      bytes[at] = static_cast<char>(bytes[at] ^ flip);
      write_file(path, bytes);
      const bool unused = at >= 8 + 20 && at < store::kFileHeaderBytes;
      if (unused) {
        EXPECT_EQ(FileStore(path).num_keys(), 2) << "byte " << at;
      } else {
        EXPECT_THROW(FileStore{path}, Error) << "byte " << at;
      }
    }
  }
}

TEST(FileStore, InvalidFilesAreRejected) {
  TempDirectory directory;
  const std::string path = directory / "store";
  std::mt19937 random(7);
  const std::string header = store::encode_file_header();
  for (int round = 0; round < 300; ++round) {
    std::string bytes = round % 2 == 0 ? header : "";
    for (auto left = random() % 400 + 1; left > 0; --left) bytes.push_back(static_cast<char>(random()));
    write_file(path, bytes);
    try {
      FileStore store(path);
      EXPECT_LT(bytes.size(), header.size() + store::kRecordHeaderBytes);
    } catch (const Error&) {
    }
    EXPECT_EQ(contents_of(path), bytes) << "a foreign file was modified";
  }
  // Records with valid checksums and invalid contents.
  using store::Record;
  using store::RecordKind;
  const std::string nested =
      "\x05" + std::string(3, '\0') + static_cast<char>(RecordKind::snapshot) + std::string(4, '\0');
  for (const Record& record :
       {Record{RecordKind::pop, "q"}, Record{RecordKind::erase, "k"}, Record{static_cast<RecordKind>(0)},
        Record{static_cast<RecordKind>(99)}, Record{RecordKind::snapshot, "", "abc"},
        Record{RecordKind::snapshot, "", "\xff\xff\xff\xff\x01"}, Record{RecordKind::snapshot, "", nested}}) {
    write_file(path, header + store::encode_record(record, header.size()));
    EXPECT_THROW(FileStore{path}, ResourceError) << static_cast<int>(record.kind);
  }
  write_file(path, "hello");
  EXPECT_THROW(FileStore{path}, InvalidArgument);
  EXPECT_EQ(contents_of(path), "hello");
}

TEST(FileStore, DoesNotGrowWithoutLimit) {
  TempDirectory directory;
  const std::string path = directory / "store";
  FileStore store(path);
  FileStore reader(path);
  FileStore late(path);
  store.set("kept", "value");
  store.queue_push("q", "first");
  store.queue_push("q", "second");
  const std::string value(100'000, 'v');
  std::int64_t most = 0;
  for (int n = 0; n < 400; ++n) {
    store.set("big", value + std::to_string(n));
    store.add("count", 1);
    if (n % 3 == 0) {
      EXPECT_EQ(reader.add("count2", 1), n / 3 + 1);
    }
    most = std::max(most, blocks_of(path));
  }
  EXPECT_LT(most, 8 << 20) << "40 MB went through";
  for (FileStore* each : {&store, &reader, &late}) {
    EXPECT_EQ(each->get("count"), "400");
    EXPECT_EQ(each->get("kept"), "value");
    EXPECT_EQ(each->get("big"), value + "399");
  }
  FileStore fresh(path);
  EXPECT_EQ(fresh.num_keys(), 4);
  EXPECT_EQ(fresh.queue_pop("q"), "first");
  EXPECT_EQ(late.queue_pop("q"), "second");
}

TEST(FileStore, CompactsOncePerGrowth) {
  TempDirectory directory;
  const std::string path = directory / "store";
  FileStore store(path);
  const std::string value(1 << 20, 'v');
  for (int n = 0; n < 10; ++n) store.set(std::to_string(n), value);
  const auto generation = [&] { return store::decode_file_header(contents_of(path))->generation; };
  const auto before = generation();
  EXPECT_GT(before, 1U);
  FileStore fresh(path);
  fresh.add("count", 1);
  EXPECT_EQ(generation(), before);
}

TEST(FileStore, KillDuringCompactionLosesNothing) {
  TempDirectory directory;
  std::mt19937 random(11);
  for (int round = 0; round < 10; ++round) {
    const std::string path = directory / std::to_string(round);
    FileStore store(path, -1, std::chrono::seconds(20));
    store.set("kept", "value");
    const pid_t victim = forked([&] {
      FileStore own(path);
      const std::string value(1 << 20, 'v');
      while (true) {
        own.set("big", value);
        own.add("count", 1);
      }
    });
    store.wait({"count"});
    ::usleep(static_cast<useconds_t>(random() % 60000));
    ::kill(victim, SIGKILL);
    status_of(victim);
    FileStore fresh(path);
    EXPECT_EQ(fresh.get("kept"), "value");
    EXPECT_EQ(fresh.get("big").size(), std::size_t{1} << 20);
    EXPECT_EQ(store.get("count"), fresh.get("count"));
    const auto next = store.add("count", 1);
    EXPECT_EQ(fresh.add("count", 0), next);
  }
}

TEST(FileStore, ForkedChildDoesNotCountAsClosing) {
  TempDirectory directory;
  std::optional<FileStore> store(std::in_place, directory / "store", 2);
  {
    const FileStore other(directory / "store", 2);
  }
  EXPECT_EQ(status_of(forked([&] { store.reset(); })), 0);
  EXPECT_TRUE(std::filesystem::exists(directory / "store"));
  store.reset();
  EXPECT_FALSE(std::filesystem::exists(directory / "store"));
}

// A file size limit simulates a full disk.
TEST(FileStore, FullDiskThrowsAndChangesNothing) {
  TempDirectory directory;
  FileStore store(directory / "store");
  store.set("a", "1");
  const pid_t child = forked([&] {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{5 << 20, 5 << 20};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    FileStore own(store.path());
    own.set("big", std::string(3 << 20, 'x'));
    EXPECT_THROW(own.set("a", std::string(3 << 20, 'x')), ResourceError);
    own.append("a", "2");
    // The log is long enough for compaction now, but the snapshot exceeds the limit.
    own.set("c", std::string(1 << 20, 'x'));
    own.append("a", "3");
    if (::testing::Test::HasFailure()) ::_exit(2);
  });
  EXPECT_EQ(status_of(child), 0);
  EXPECT_EQ(store.get("a"), "123");
  EXPECT_EQ(FileStore(store.path()).num_keys(), 3);
}

TEST(FileStore, StoppedLockHolderIsATimeout) {
  TempDirectory directory;
  FileStore store(directory / "store", -1, Milliseconds(1));
  store.set("a", "1");
  const int fd = ::open(store.path().c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(::flock(fd, LOCK_EX), 0);
  EXPECT_THROW(store.set("a", "2"), Timeout);
  ::close(fd);
  EXPECT_EQ(store.get("a"), "1");
}

TEST(FileStore, LastStoreRemovesTheFile) {
  TempDirectory directory;
  const std::string path = directory / "store";
  auto first = std::make_unique<FileStore>(path, 2);
  auto second = std::make_unique<FileStore>(path, 2);
  EXPECT_EQ(first->num_keys(), 0);
  first.reset();
  EXPECT_TRUE(std::filesystem::exists(path));
  second->set("a", "1");
  second.reset();
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(FileStore, WorksAfterItsFileWasRemoved) {
  TempDirectory directory;
  const std::string path = directory / "store";
  FileStore one(path, -1, std::chrono::seconds(20));
  FileStore two(path, -1, std::chrono::seconds(20));
  std::filesystem::remove(path);
  std::thread setter([&] { two.set("k", "v"); });
  EXPECT_EQ(one.get("k"), "v");
  setter.join();
  EXPECT_FALSE(FileStore(path).check({"k"}));
}

TEST(FileStore, ReopensAFileThatIsBeingRemoved) {
  TempDirectory directory;
  const std::string path = directory / "store";
  FileStore before(path);
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(::flock(fd, LOCK_EX), 0);
  static std::atomic<bool> waits = false;
  std::thread opening([&] {
    const InterruptScope scope([] {
      waits = true;
      waits.notify_one();
    });
    FileStore(path, -1, std::chrono::seconds(20)).set("k", "v");
  });
  waits.wait(false);
  std::filesystem::remove(path);
  ::close(fd);
  opening.join();
  EXPECT_FALSE(before.check({"k"}));
  EXPECT_TRUE(FileStore(path).check({"k"}));
}

TEST(FileStore, ForkedChildMayUseTheStore) {
  TempDirectory directory;
  FileStore store(directory / "store");
  store.set("a", "1");
  const auto add_many = [&] {
    store.barrier("b", 2, std::chrono::seconds(20));  // start at the same time
    for (int n = 0; n < 3000; ++n) store.add("sum", 1);
  };
  const pid_t child = forked(add_many);
  add_many();
  EXPECT_EQ(status_of(child), 0);
  EXPECT_EQ(store.get("sum"), "6000");
}

TEST(FileStore, RejectsLinksInSharedDirectories) {
  TempDirectory directory;
  ASSERT_EQ(::chmod(directory.path().c_str(), 01777), 0);
  const std::string target = directory / "target";
  write_file(target, "");
  ASSERT_EQ(::symlink(target.c_str(), (directory / "link").c_str()), 0);
  EXPECT_THROW(FileStore{directory / "link"}, ResourceError);
  ASSERT_EQ(::link(target.c_str(), (directory / "second name").c_str()), 0);
  EXPECT_THROW(FileStore{directory / "second name"}, InvalidArgument);
  ASSERT_EQ(::mkfifo((directory / "pipe").c_str(), 0600), 0);
  EXPECT_THROW(FileStore{directory / "pipe"}, InvalidArgument);
  EXPECT_THROW(FileStore{directory.path()}, ResourceError);
  EXPECT_THROW(FileStore{directory / "no/such/directory"}, ResourceError);
  EXPECT_THROW(FileStore{""}, InvalidArgument);
}

TEST(FileStore, NewFilesArePrivate) {
  TempDirectory directory;
  FileStore store(directory / "store");
  struct stat info{};
  ASSERT_EQ(::stat(store.path().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

}  // namespace
}  // namespace hookline
