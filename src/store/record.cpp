// Encoding and validation of FileStore records.
#include "store/record.hpp"

#include "kernel/checksum.hpp"
#include "store/number_bytes.hpp"

namespace hookline::store {

namespace {

constexpr std::string_view kMagic("HOOKSTO2", 8);
constexpr std::size_t kSlotBytes = 20;
constexpr std::size_t kMaxBodyBytes = std::size_t{1} << 30;

/// Detects accidental corruption; not cryptographic.
std::uint32_t checksum(std::string_view bytes, std::uint64_t seed) {
  return kernel::checksum(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size(),
                          static_cast<std::uint32_t>(seed ^ (seed >> 32)));
}

std::uint32_t length_checksum(std::uint32_t length, std::uint64_t offset) {
  std::string bytes;
  append_number(bytes, length);
  return checksum(bytes, offset);
}

void put_body(std::string& to, const Record& record) {
  append_number(to, static_cast<std::uint8_t>(record.kind));
  append_number(to, static_cast<std::uint32_t>(record.key.size()));
  to.append(record.key).append(record.value);
}

std::string with_header(const std::string& body, std::uint64_t offset) {
  const auto length = static_cast<std::uint32_t>(body.size());
  std::string record;
  record.reserve(kRecordHeaderBytes + body.size());
  append_number(record, length);
  append_number(record, length_checksum(length, offset));
  append_number(record, checksum(body, offset));
  return record + body;
}

std::optional<Record> decode_body(std::string_view body) {
  if (body.size() < 5) return std::nullopt;
  const auto key_bytes = number_at<std::uint32_t>(body, 1);
  if (key_bytes > body.size() - 5) return std::nullopt;
  return Record{static_cast<RecordKind>(body[0]), body.substr(5, key_bytes), body.substr(5 + std::size_t{key_bytes})};
}

bool apply_snapshot(std::string_view entries, Contents& contents) {
  contents = Contents();
  while (!entries.empty()) {
    if (entries.size() < 4) return false;
    const auto length = number_at<std::uint32_t>(entries, 0);
    if (length > entries.size() - 4) return false;
    const auto record = decode_body(entries.substr(4, length));
    if (!record || record->kind == RecordKind::snapshot || !apply(*record, contents)) return false;
    entries.remove_prefix(4 + std::size_t{length});
  }
  return true;
}

}  // namespace

std::string encode_record(const Record& record, std::uint64_t offset) {
  std::string body;
  body.reserve(5 + record.key.size() + record.value.size());
  put_body(body, record);
  return with_header(body, offset);
}

std::optional<std::string> encode_snapshot(const Contents& contents, std::uint64_t offset) {
  std::string body;
  put_body(body, {RecordKind::snapshot});
  const auto append_entry = [&body](const Record& record) {
    if (body.size() + record.key.size() + record.value.size() > kMaxBodyBytes / 2) return false;
    append_number(body, static_cast<std::uint32_t>(5 + record.key.size() + record.value.size()));
    put_body(body, record);
    return true;
  };
  for (std::int64_t i = 0; i < contents.opened; ++i) append_entry({RecordKind::opened});
  for (std::int64_t i = 0; i < contents.closed; ++i) append_entry({RecordKind::closed});
  for (const auto& [key, value] : contents.table.values()) {
    if (!append_entry({RecordKind::set, key, value})) return std::nullopt;
  }
  for (const auto& [key, queue] : contents.table.queues()) {
    for (const std::string& value : queue) {
      if (!append_entry({RecordKind::push, key, value})) return std::nullopt;
    }
  }
  return with_header(body, offset);
}

std::optional<RecordHeader> decode_record_header(std::string_view bytes, std::uint64_t offset) {
  const auto length = number_at<std::uint32_t>(bytes, 0);
  if (length > kMaxBodyBytes || number_at<std::uint32_t>(bytes, 4) != length_checksum(length, offset))
    return std::nullopt;
  return RecordHeader{length, number_at<std::uint32_t>(bytes, 8)};
}

bool replay(const RecordHeader& header, std::string_view body, std::uint64_t offset, Contents& contents) {
  if (body.size() != header.body_bytes || checksum(body, offset) != header.body_checksum) return false;
  const auto record = decode_body(body);
  return record && apply(*record, contents);
}

bool apply(const Record& record, Contents& contents) {
  Table& table = contents.table;
  switch (record.kind) {
    case RecordKind::set: table.set(record.key, std::string(record.value)); return true;
    case RecordKind::append: table.append(record.key, record.value); return true;
    case RecordKind::erase: return table.delete_key(record.key);
    case RecordKind::push: table.queue_push(record.key, std::string(record.value)); return true;
    case RecordKind::pop: return table.queue_pop(record.key).has_value();
    case RecordKind::opened: ++contents.opened; return true;
    case RecordKind::closed: ++contents.closed; return true;
    case RecordKind::snapshot: return apply_snapshot(record.value, contents);
  }
  return false;
}

std::uint64_t slot_offset(std::uint64_t generation) { return kMagic.size() + kSlotBytes * (1 - generation % 2); }

std::string encode_slot(const FileHeader& header) {
  std::string slot;
  append_number(slot, header.start);
  append_number(slot, header.generation);
  append_number(slot, checksum(slot, kSlotBytes));
  return slot;
}

std::string encode_file_header() {
  std::string bytes(kMagic);
  bytes += encode_slot({});
  bytes.resize(kFileHeaderBytes);
  return bytes;
}

std::optional<FileHeader> decode_file_header(std::string_view bytes) {
  if (bytes.size() < kFileHeaderBytes || !bytes.starts_with(kMagic)) return std::nullopt;
  std::optional<FileHeader> newest;
  for (const std::uint64_t parity : {1u, 0u}) {
    const std::string_view slot = bytes.substr(slot_offset(parity), kSlotBytes);
    const FileHeader header{number_at<std::uint64_t>(slot, 0), number_at<std::uint64_t>(slot, 8)};
    const bool valid =
        encode_slot(header) == slot && header.generation % 2 == parity && header.start >= kFileHeaderBytes;
    if (valid && (!newest || header.generation > newest->generation)) newest = header;
  }
  return newest;
}

}  // namespace hookline::store
