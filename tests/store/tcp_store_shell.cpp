// A process that keeps or joins a TCP store and does what it is told on standard input, for tests from other languages.
//
//   tcp_store_shell master|client HOST PORT [PREFIX]
//
// It prints its port, then answers each line "operation timeout_ms argument…" with "value…" or "!Error message". Texts
// are hexadecimal and begin with x, so that any bytes pass and an empty one is seen.
#include <iostream>
#include <sstream>

#include <hookline/core/error.hpp>
#include <hookline/store/prefix_store.hpp>
#include <hookline/store/tcp_store.hpp>

namespace {

using hookline::Milliseconds;
using Texts = std::vector<std::string>;

std::string to_hex(const std::string& text) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string hex = "x";
  for (const char each : text) {
    const auto byte = static_cast<unsigned char>(each);
    hex += {kDigits[byte >> 4], kDigits[byte & 15]};
  }
  return hex;
}

std::string from_hex(const std::string& hex) {
  std::string text;
  for (std::size_t i = 1; i + 1 < hex.size(); i += 2)
    text.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  return text;
}

std::string joined(const Texts& texts) {
  std::string line;
  for (const std::string& text : texts) line += to_hex(text) + " ";
  return line;
}

std::string perform(hookline::Store& store, const std::string& operation, Milliseconds timeout, const Texts& words) {
  Texts texts;
  for (const std::string& word : words) texts.push_back(from_hex(word));
  store.set_timeout(timeout);
  if (operation == "set") return store.set(texts.at(0), texts.at(1)), "";
  if (operation == "get") return to_hex(store.get(texts.at(0)));
  if (operation == "add") return std::to_string(store.add(texts.at(0), std::stoll(texts.at(1))));
  if (operation == "wait") return store.wait(texts), "";
  if (operation == "check") return store.check(texts) ? "1" : "0";
  if (operation == "compare_set") return to_hex(store.compare_set(texts.at(0), texts.at(1), texts.at(2)));
  if (operation == "delete_key") return store.delete_key(texts.at(0)) ? "1" : "0";
  if (operation == "num_keys") return std::to_string(store.num_keys());
  if (operation == "list_keys") return joined(store.list_keys());
  if (operation == "append") return store.append(texts.at(0), texts.at(1)), "";
  if (operation == "multi_get") return joined(store.multi_get(texts));
  if (operation == "multi_set") {
    const auto middle = texts.begin() + static_cast<std::ptrdiff_t>(texts.size() / 2);
    return store.multi_set(Texts(texts.begin(), middle), Texts(middle, texts.end())), "";
  }
  if (operation == "queue_push") return store.queue_push(texts.at(0), texts.at(1)), "";
  if (operation == "queue_pop") return to_hex(store.queue_pop(texts.at(0), texts.at(1) == "1"));
  if (operation == "queue_len") return std::to_string(store.queue_len(texts.at(0)));
  if (operation == "barrier") return store.barrier(texts.at(0), std::stoll(texts.at(1)), timeout), "";
  throw hookline::InvalidArgument("no such operation: " + operation);
}

std::string answer(hookline::Store& store, const std::string& line) {
  std::istringstream in(line);
  std::string operation;
  std::int64_t timeout = 0;
  in >> operation >> timeout;
  Texts words;
  for (std::string word; in >> word;) words.push_back(word);
  try {
    return perform(store, operation, Milliseconds(timeout), words);
  } catch (const hookline::Timeout& error) {
    return std::string("!Timeout ") + error.what();
  } catch (const hookline::PeerLost& error) {
    return std::string("!PeerLost ") + error.what();
  } catch (const hookline::InvalidArgument& error) {
    return std::string("!InvalidArgument ") + error.what();
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv, argv + argc);
  const bool is_master = arguments.at(1) == "master";
  const auto tcp = std::make_shared<hookline::TCPStore>(hookline::TCPStoreOptions{
      .host = arguments.at(2),
      .port = static_cast<std::uint16_t>(std::stoi(arguments.at(3))),
      .is_master = is_master,
      .timeout = std::chrono::seconds(20),
  });
  std::shared_ptr<hookline::Store> store = tcp;
  if (argc > 4) store = std::make_shared<hookline::PrefixStore>(arguments.at(4), tcp);
  std::cout << tcp->port() << std::endl;
  for (std::string line; std::getline(std::cin, line);) std::cout << answer(*store, line) << std::endl;
}
