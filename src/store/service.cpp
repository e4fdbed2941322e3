// StoreService: the execution of each query.
#include "store/service.hpp"

#include <optional>
#include <utility>

#include <hookline/core/error.hpp>

namespace hookline::store {

bool StoreService::serve(ClientId client, const Request& request, std::string& reply) {
  const std::string_view key = request.keys.empty() ? std::string_view() : request.keys.front();
  switch (request.query) {
    case Query::validate: return false;  // valid only as the first request
    case Query::set: return write(key, request.values[0]);
    case Query::compare_set:
      if (!value_within_quota(key, request.values[1].size())) return false;
      append_text(reply, table_.compare_set(key, std::string(request.values[0]), std::string(request.values[1])));
      if (table_.find(key)) waiters_.on_key_set(key);
      return true;
    case Query::get:
    case Query::multi_get: return serve_values(request, reply);
    case Query::add: return serve_add(request, reply);
    case Query::check:
      append_number(reply, table_.check(request.keys) ? CheckReply::ready : CheckReply::not_ready);
      return true;
    case Query::wait:
    case Query::barrier: return serve_wait(client, request, reply);
    case Query::num_keys: append_number(reply, table_.num_keys()); return true;
    case Query::delete_key: append_number<std::int64_t>(reply, table_.delete_key(key) ? 1 : 0); return true;
    case Query::append: return append(key, request.values[0]);
    case Query::multi_set:
      for (std::size_t i = 0; i < request.keys.size(); ++i) {
        if (!write(request.keys[i], request.values[i])) return false;
      }
      return true;
    case Query::cancel_wait:
      waiters_.cancel(client);
      append_number(reply, WaitReply::wait_canceled);
      return true;
    case Query::ping: append_number(reply, static_cast<std::uint32_t>(request.number)); return true;
    case Query::queue_push: return push(key, request.values[0]);
    case Query::queue_pop: {
      append_number(reply, table_.queue_len(key));
      if (const std::optional<std::string> value = table_.queue_pop(key)) append_text(reply, *value);
      return true;
    }
    case Query::queue_len: append_number(reply, table_.queue_len(key)); return true;
    case Query::list_keys: return serve_keys(reply);
  }
  return false;
}

bool StoreService::within_quota(bool new_key, std::size_t size, std::size_t added, std::size_t freed) {
  const std::size_t keys = table_.values().size() + table_.queues().size();
  if (size > quota_.max_value_bytes) reject_reason_ = RejectReason::max_value_bytes;
  else if (new_key && keys >= quota_.max_keys) reject_reason_ = RejectReason::max_keys;
  else if (added > freed && table_.bytes() + waiters_.bytes() + added - freed > quota_.max_bytes)
    reject_reason_ = RejectReason::max_bytes;
  return !reject_reason_;
}

bool StoreService::value_within_quota(std::string_view key, std::size_t size) {
  const std::string* old = table_.find(key);
  if (old) return within_quota(false, size, size, old->size());
  return within_quota(true, size, Table::kEntryBytes + key.size() + size);
}

bool StoreService::write(std::string_view key, std::string_view value) {
  if (!value_within_quota(key, value.size())) return false;
  table_.set(key, std::string(value));
  waiters_.on_key_set(key);
  return true;
}

bool StoreService::append(std::string_view key, std::string_view value) {
  const std::string* old = table_.find(key);
  const std::size_t size = value.size() + (old ? old->size() : 0);
  if (size > kMaxReplyBytes - 8) return false;  // get could not reply with it
  if (!value_within_quota(key, size)) return false;
  table_.append(key, value);
  waiters_.on_key_set(key);
  return true;
}

bool StoreService::push(std::string_view key, std::string_view value) {
  const bool new_key = table_.queue_len(key) == 0;
  const std::size_t added = Table::kEntryBytes + value.size() + (new_key ? Table::kEntryBytes + key.size() : 0);
  if (!within_quota(new_key, value.size(), added)) return false;
  table_.queue_push(key, std::string(value));
  waiters_.on_queue_push(key);
  return true;
}

bool StoreService::serve_add(const Request& request, std::string& reply) {
  constexpr std::size_t kDigits = 20;
  const std::string_view key = request.keys[0];
  if (!value_within_quota(key, kDigits)) return false;
  std::int64_t sum = 0;
  try {
    sum = table_.add(key, request.number);
  } catch (const InvalidArgument&) {
    return false;  // as in PyTorch: the protocol has no error reply
  }
  append_number(reply, sum);
  if (key == kWorkersKey) workers_ = sum;
  waiters_.on_key_set(key);
  return true;
}

bool StoreService::serve_wait(ClientId client, const Request& request, std::string& reply) {
  if (waiters_.is_waiting(client)) return false;
  std::size_t bytes = 0;
  for (const std::string_view key : request.keys) bytes += Waiters::kWaitBytes + 2 * key.size();
  if (request.query == Query::barrier) {
    if (!within_quota(false, 0, bytes)) return false;
    if (waiters_.arrive_at_barrier(client, request.keys[0], request.number))
      append_number(reply, WaitReply::stop_waiting);
    return true;
  }
  std::vector<std::string> missing;
  for (const std::string_view key : request.keys) {
    if (!table_.has(key)) missing.emplace_back(key);
  }
  if (missing.empty()) {
    append_number(reply, WaitReply::stop_waiting);
  } else if (!within_quota(false, 0, bytes)) {
    return false;
  } else {
    waiters_.wait(client, std::move(missing));
  }
  return true;
}

// Replies with an empty value for a missing key: the protocol has no other reply, and clients wait before they get.
bool StoreService::serve_values(const Request& request, std::string& reply) {
  const std::size_t before = reply.size();
  for (const std::string_view key : request.keys) {
    const std::string* value = table_.find(key);
    append_text(reply, value ? std::string_view(*value) : std::string_view());
    if (reply.size() - before > kMaxReplyBytes) return false;
  }
  return true;
}

bool StoreService::serve_keys(std::string& reply) {
  const std::size_t before = reply.size();
  append_number(reply, table_.num_keys());
  for (const auto& [key, value] : table_.values()) {
    append_text(reply, key);
    if (reply.size() - before > kMaxReplyBytes) return false;
  }
  return true;
}

}  // namespace hookline::store
