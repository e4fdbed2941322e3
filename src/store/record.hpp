// The file format of FileStore: encoding, validation and replay of records. No I/O.
//
// A file is a header followed by records. A record is the body length (4 bytes), a checksum of length and offset (4), a
// checksum of the body (4), and the body: kind (1), key length (4), key, value. Numbers are in host byte order. The
// separate length checksum distinguishes a record that a killed process left incomplete from a corrupt one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "store/table.hpp"

namespace hookline::store {

/// The contents of a replayed log.
struct Contents {
  Table table;
  /// The number of stores that were opened and closed with a world size.
  std::int64_t opened = 0;
  std::int64_t closed = 0;
};

enum class RecordKind : std::uint8_t { set = 1, append, erase, push, pop, opened, closed, snapshot };

struct Record {
  RecordKind kind;
  std::string_view key = {};
  std::string_view value = {};
};

inline constexpr std::size_t kRecordHeaderBytes = 12;
inline constexpr std::size_t kMaxFieldBytes = std::size_t{256} << 20;

/// Encodes a record for the file offset `offset`. Key and value must not exceed kMaxFieldBytes.
std::string encode_record(const Record& record, std::uint64_t offset);
/// Encodes all contents as one snapshot record; nullopt if it would be too long.
std::optional<std::string> encode_snapshot(const Contents& contents, std::uint64_t offset);

struct RecordHeader {
  std::uint32_t body_bytes;
  std::uint32_t body_checksum;
};
/// Decodes a record header; nullopt if it is invalid at that offset.
std::optional<RecordHeader> decode_record_header(std::string_view bytes, std::uint64_t offset);
/// Applies a record body to `contents`. Returns false, with unspecified `contents`, if it is corrupt or inconsistent.
bool replay(const RecordHeader& header, std::string_view body, std::uint64_t offset, Contents& contents);
/// Applies a decoded record. Returns false if it contradicts `contents`, such as a pop from an empty queue.
bool apply(const Record& record, Contents& contents);

/// The file header: a magic number and two slots with the start of the log. A writer updates the older slot, so that
/// one slot is valid at any time.
inline constexpr std::size_t kFileHeaderBytes = 64;

struct FileHeader {
  std::uint64_t start = kFileHeaderBytes;
  std::uint64_t generation = 1;
};
std::string encode_file_header();
/// Encodes a slot of the file header.
std::string encode_slot(const FileHeader& header);
/// Returns the file offset of the slot that holds a generation.
std::uint64_t slot_offset(std::uint64_t generation);
/// Returns the newest valid slot; nullopt if the bytes are not a store file header or both slots are corrupt.
std::optional<FileHeader> decode_file_header(std::string_view bytes);

}  // namespace hookline::store
