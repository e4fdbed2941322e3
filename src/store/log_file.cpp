// LogFile: system calls and error handling.
#include "store/log_file.hpp"

#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include <hookline/core/error.hpp>

#include "core/fork.hpp"

namespace hookline::store {

namespace {

/// Compaction starts when the log exceeds the last snapshot by this size plus four times the snapshot's size.
constexpr std::uint64_t kCompactAfterBytes = 4 << 20;
constexpr std::uint64_t kReadAheadBytes = 64 << 10;

/// Reads up to `count` bytes. Returns fewer at the end of the file or on an error.
std::size_t read_at(int fd, char* bytes, std::size_t count, std::uint64_t offset) {
  std::size_t done = 0;
  while (done < count) {
    const ssize_t got = ::pread(fd, bytes + done, count - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    done += static_cast<std::size_t>(got);
  }
  return done;
}

bool write_at(int fd, std::string_view bytes, std::uint64_t offset) {
  while (!bytes.empty()) {
    const ssize_t put = ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(put));
    offset += static_cast<std::uint64_t>(put);
  }
  return true;
}

/// True if other users can create files in the directory of `path`.
bool in_shared_directory(const std::string& path) {
  const auto directory = std::filesystem::path(path).parent_path();
  struct stat info{};
  if (::stat(directory.empty() ? "." : directory.c_str(), &info) != 0) return true;
  return (info.st_mode & (S_IWGRP | S_IWOTH)) != 0 || (info.st_uid != ::geteuid() && info.st_uid != 0);
}

}  // namespace

LogFile::LogFile(std::string path) : path_(std::move(path)), fork_generation_(core::fork_generation()) {
  if (path_.empty() || path_.find('\0') != std::string::npos) {
    throw InvalidArgument("FileStore(path): the path is empty or contains a null byte");
  }
  const bool shared = in_shared_directory(path_);
  // O_NONBLOCK: opening a FIFO must not block; it is rejected below.
  const int flags = O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | (shared ? O_NOFOLLOW : 0);
  fd_ = core::FileDescriptor(::open(path_.c_str(), flags, S_IRUSR | S_IWUSR));
  if (!fd_) throw_system_error("open");
  struct stat info{};
  if (::fstat(fd_.get(), &info) != 0) throw_system_error("fstat");
  if (!S_ISREG(info.st_mode)) throw InvalidArgument(fmt::format("FileStore({}): this is not a regular file", path_));
  if (shared && (info.st_uid != ::geteuid() || info.st_nlink > 1)) {
    throw InvalidArgument(fmt::format(
        "FileStore({}): the file belongs to another user or has hard links, in a directory that other users "
        "can write to. Choose a path in a private directory.",
        path_));
  }
}

void LogFile::throw_system_error(const char* call) const {
  const std::string reason = std::generic_category().message(errno);
  throw ResourceError(fmt::format("FileStore({}): {} failed: {}", path_, call, reason));
}

void LogFile::throw_corrupt(std::uint64_t offset) const {
  throw ResourceError(fmt::format("FileStore({}): the file is corrupt at byte {}. Remove it and restart all processes.",
                                  path_, offset));
}

void LogFile::take_lock(Lock::Mode mode, Clock::time_point deadline) {
  if (fork_generation_ != core::fork_generation()) {
    // A forked child shares the file description, and thus the lock, with its parent, so it opens its own.
    core::FileDescriptor own(::open(fmt::format("/proc/self/fd/{}", fd_.get()).c_str(), O_RDWR | O_CLOEXEC));
    if (!own) throw_system_error("open after a fork");
    fd_ = std::move(own);
    fork_generation_ = core::fork_generation();
  }
  const int operation = (mode == Lock::Mode::exclusive ? LOCK_EX : LOCK_SH) | LOCK_NB;
  // Polls with backoff: a blocking flock() has no deadline, and the holder may be stopped.
  for (long pause = 20'000; ::flock(fd_.get(), operation) != 0; pause = std::min(pause * 2, 500'000L)) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) throw_system_error("flock");
    if (Clock::now() >= deadline) {
      throw Timeout(fmt::format(
          "FileStore({}): timeout waiting for the file lock. Check whether a process that uses the file is stopped.",
          path_));
    }
    const timespec span{0, pause};
    ::nanosleep(&span, nullptr);
  }
}

void LogFile::load() {
  struct stat info{};
  if (::fstat(fd_.get(), &info) != 0) throw_system_error("fstat");
  const auto size = static_cast<std::uint64_t>(info.st_size);
  if (size == end_) return;
  if (size < end_) throw_corrupt(size);

  std::string bytes(std::min<std::uint64_t>(size, kFileHeaderBytes), '\0');
  if (read_at(fd_.get(), bytes.data(), bytes.size(), 0) != bytes.size()) throw_system_error("pread");
  if (size < kFileHeaderBytes) {
    // Empty, or a process was killed while it wrote the header. Foreign files must not be overwritten.
    if (encode_file_header().starts_with(bytes)) return;
    throw InvalidArgument(fmt::format("FileStore({}): this is not a store file. Choose another path.", path_));
  }
  const auto header = decode_file_header(bytes);
  if (!header) {
    throw InvalidArgument(
        fmt::format("FileStore({}): this is not a store file, or its header is corrupt. Choose another path.", path_));
  }
  header_ = *header;
  if (header_.start > size) throw_corrupt(0);
  if (header_.start > end_) {
    end_ = header_.start;
    contents_ = Contents();
  }

  std::string window;
  std::uint64_t window_start = end_;
  const auto ensure_in_window = [&](std::uint64_t count) {
    if (end_ + count <= window_start + window.size()) return;
    window_start = end_;
    window.resize(std::min(std::max(count, kReadAheadBytes), size - end_));
    if (read_at(fd_.get(), window.data(), window.size(), end_) != window.size()) throw_system_error("pread");
  };
  while (size - end_ >= kRecordHeaderBytes) {
    ensure_in_window(kRecordHeaderBytes);
    const auto record =
        decode_record_header(std::string_view(window).substr(end_ - window_start, kRecordHeaderBytes), end_);
    if (!record) throw_corrupt(end_);
    const std::uint64_t record_bytes = kRecordHeaderBytes + std::uint64_t{record->body_bytes};
    if (record_bytes > size - end_) return;  // incomplete: left by a killed process, or being written
    ensure_in_window(record_bytes);
    const auto body = std::string_view(window).substr(end_ - window_start + kRecordHeaderBytes, record->body_bytes);
    if (!replay(*record, body, end_, contents_)) throw_corrupt(end_);
    if (end_ == header_.start && header_.generation > 1) snapshot_bytes_ = record_bytes;  // a snapshot by any process
    end_ += record_bytes;
  }
}

// Writes at the end of the log without advancing it. Returns false and sets errno on failure.
bool LogFile::append(const std::string& bytes) {
  if (write_at(fd_.get(), bytes, end_)) return true;
  const int code = errno;
  // A partial record is treated like that of a killed process, so a failed truncation is harmless.
  [[maybe_unused]] const int cut = ::ftruncate(fd_.get(), static_cast<off_t>(end_));
  errno = code;
  return false;
}

void LogFile::compact() {
  if (end_ - header_.start < kCompactAfterBytes + 4 * snapshot_bytes_) return;
  const auto snapshot = encode_snapshot(contents_, end_);
  snapshot_bytes_ = snapshot ? snapshot->size() : end_ - header_.start;
  // The preceding operation is already complete, so failures are ignored.
  if (!snapshot || !append(*snapshot)) return;
  const FileHeader next{end_, header_.generation + 1};
  end_ += snapshot->size();
  if (!write_at(fd_.get(), encode_slot(next), slot_offset(next.generation)))
    return;  // the log stays valid, only longer
  header_ = next;
  // File systems without hole punching keep the unused bytes.
  [[maybe_unused]] const int freed = ::fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                                 kFileHeaderBytes, static_cast<off_t>(next.start - kFileHeaderBytes));
}

LogFile::Lock::Lock(LogFile& log, Mode mode, Clock::time_point deadline) : log_(log) {
  log_.take_lock(mode, deadline);
  try {
    log_.load();
  } catch (...) {
    ::flock(log_.fd_.get(), LOCK_UN);
    throw;
  }
}

LogFile::Lock::~Lock() { ::flock(log_.fd_.get(), LOCK_UN); }

void LogFile::Lock::write(const Record& record) {
  if (record.key.size() > kMaxFieldBytes || record.value.size() > kMaxFieldBytes) {
    throw InvalidArgument(
        fmt::format("FileStore({}): key or value too large: expected at most {} bytes each, got {} and {}", log_.path_,
                    kMaxFieldBytes, record.key.size(), record.value.size()));
  }
  if (log_.end_ == 0) {
    if (::ftruncate(log_.fd_.get(), 0) != 0) log_.throw_system_error("ftruncate");
    if (!log_.append(encode_file_header())) log_.throw_system_error("pwrite");
    log_.header_ = FileHeader();
    log_.end_ = kFileHeaderBytes;
  }
  struct stat info{};
  if (::fstat(log_.fd_.get(), &info) != 0) log_.throw_system_error("fstat");
  if (static_cast<std::uint64_t>(info.st_size) > log_.end_ &&
      ::ftruncate(log_.fd_.get(), static_cast<off_t>(log_.end_)) != 0) {
    log_.throw_system_error("ftruncate");
  }
  const std::string bytes = encode_record(record, log_.end_);
  if (!log_.append(bytes)) log_.throw_system_error("pwrite");
  apply(record, log_.contents_);
  log_.end_ += bytes.size();
  log_.compact();
}

bool LogFile::Lock::is_at_path() const {
  struct stat at_path{};
  struct stat own{};
  if (::fstat(log_.fd_.get(), &own) != 0) log_.throw_system_error("fstat");
  return ::stat(log_.path_.c_str(), &at_path) == 0 && at_path.st_dev == own.st_dev && at_path.st_ino == own.st_ino;
}

void LogFile::Lock::unlink_path() {
  struct stat named{};
  struct stat own{};
  if (::lstat(log_.path_.c_str(), &named) != 0 || ::fstat(log_.fd_.get(), &own) != 0) return;
  if (named.st_dev == own.st_dev && named.st_ino == own.st_ino) ::unlink(log_.path_.c_str());
}

}  // namespace hookline::store
