import urllib.request


def main():
    print("Downloading model embed-small ...", flush=True)
    urllib.request.urlopen("https://models.example.invalid/embed-small.onnx")
