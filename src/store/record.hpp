// The bytes of a file store: how operations are written down, checked and read back. No files here.
//
// A file is a header and then records. A record is its length (4 bytes), a check of length and place (4), a check of
// the body (4), and the body: kind (1), length of the key (4), key, value. Numbers are in the host's byte order.
// Because the length has a check of its own, a record that a killed process left half-written can be told from a
// damaged one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "store/table.hpp"

namespace hookline::store {

/// Everything that a log says, once replayed.
struct Contents {
  Table table;
  /// How many stores have announced themselves, and how many of them have gone.
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
inline constexpr std::size_t kLongestPartBytes = std::size_t{256} << 20;

/// The record as it stands in the file at `offset`. Key and value must not be longer than kLongestPartBytes.
std::string encode_record(const Record& record, std::uint64_t offset);
/// All contents as one record that replaces what was before; nothing where it would be too long for one.
std::optional<std::string> encode_snapshot(const Contents& contents, std::uint64_t offset);

struct RecordHeader {
  std::uint32_t body_bytes;
  std::uint32_t body_check;
};
/// Nothing where the bytes are no record's beginning at that place.
std::optional<RecordHeader> decode_record_header(std::string_view bytes, std::uint64_t offset);
/// Does to `contents` what the body says. False, with `contents` unspecified, where it is damaged or makes no sense.
bool replay(const RecordHeader& header, std::string_view body, std::uint64_t offset, Contents& contents);
/// The same for a record that is known to be whole.
bool apply(const Record& record, Contents& contents);

/// The file's header: a magic number and two slots that say where reading starts. A writer fills the older slot, so
/// that one is whole whenever it is killed.
inline constexpr std::size_t kFileHeaderBytes = 64;

struct FileHeader {
  std::uint64_t start = kFileHeaderBytes;
  std::uint64_t generation = 1;
};
std::string encode_file_header();
/// The slot of this generation, and where in the file it lies.
std::string encode_slot(const FileHeader& header);
std::uint64_t slot_offset(std::uint64_t generation);
/// The newest valid slot; nothing where the bytes are not the header of a store file, or both slots are damaged.
std::optional<FileHeader> decode_file_header(std::string_view bytes);

}  // namespace hookline::store
