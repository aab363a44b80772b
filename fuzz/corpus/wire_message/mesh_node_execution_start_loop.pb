"
lloopBxêö5s